"""One job of the Monte Carlo example: generate collisions, and fill histograms of the muon pairs in them.

    python generate.py

The range of events and the seed are those of the job (docs/reference/data-in-jobs.md). The generator is PYTHIA 8 if it
is installed: proton collisions at 13 TeV, in which a Z boson or a virtual photon decays to two muons, with showers of
both initial and final state. Without it, a toy draws the mass from a Breit-Wigner peak, and says so in its results.
"""

import json
import math
import os
import random

HISTOGRAMS = {
    "mass": {"low": 60.0, "high": 120.0, "bins": 120},
    "pt": {"low": 0.0, "high": 80.0, "bins": 80},
    "rapidity": {"low": -5.0, "high": 5.0, "bins": 50},
}
SETTINGS = (
    "Print:quiet = on",
    "Beams:eCM = 13000.",
    "WeakSingleBoson:ffbar2gmZ = on",
    "23:onMode = off",
    "23:onIfAny = 13",
    "PhaseSpace:mHatMin = 60.",
    "PhaseSpace:mHatMax = 120.",
    "PartonLevel:MPI = off",
    "HadronLevel:all = off",
    "Random:setSeed = on",
)
Z_MASS, Z_WIDTH = 91.188, 2.495


class Pythia:
    """PYTHIA 8."""

    def __init__(self, seed):
        import pythia8mc

        self.name = "PYTHIA 8"
        self._pythia = pythia8mc.Pythia("", False)
        for setting in (*SETTINGS, f"Random:seed = {seed}"):
            self._pythia.readString(setting)
        if not self._pythia.init():
            raise SystemExit("PYTHIA could not be initialised")

    def next(self):
        """Mass, transverse momentum and rapidity of the muon pair of one event."""
        while not self._pythia.next():
            pass
        muons = [particle for particle in self._pythia.event if particle.isFinal() and particle.idAbs() == 13]
        first, second = sorted(muons, key=lambda muon: muon.pT())[-2:]
        pair = first.p() + second.p()
        return pair.mCalc(), pair.pT(), pair.rap()

    def cross_section(self):
        """Picobarn, and its statistical error."""
        return self._pythia.infoPython().sigmaGen() * 1e9, self._pythia.infoPython().sigmaErr() * 1e9


class Toy:
    """A stand-in without physics beyond the shape of the peak."""

    def __init__(self, seed):
        self.name = "toy (PYTHIA 8 is not installed)"
        self._random = random.Random(seed)

    def next(self):
        draw = self._random
        mass = 0.0
        while not 60.0 < mass < 120.0:
            mass = Z_MASS + Z_WIDTH / 2 * math.tan(math.pi * (draw.random() - 0.5))
        return mass, draw.gammavariate(1.6, 8.0), draw.gauss(0.0, 1.7)

    def cross_section(self):
        return None


def generator(seed):
    try:
        return Pythia(seed)
    except ImportError:
        return Toy(seed)


def fill(histogram, value):
    """Count a value in its bin; values beyond the ends are counted apart."""
    bins, low, high = histogram["bins"], histogram["low"], histogram["high"]
    if low <= value < high:
        histogram["counts"][int((value - low) / (high - low) * bins)] += 1
    else:
        histogram["outside"] += 1


def main():
    events, seed = int(os.environ["PILOTAGE_EVENTS"]), int(os.environ["PILOTAGE_SEED"])
    source = generator(seed)
    histograms = {
        name: {**axis, "counts": [0] * axis["bins"], "outside": 0} for name, axis in HISTOGRAMS.items()
    }
    for _ in range(events):
        for name, value in zip(HISTOGRAMS, source.next()):  # noqa: B905
            fill(histograms[name], value)
    result = {
        "generator": source.name,
        "events": events,
        "jobs": 1,
        "cross_section": source.cross_section(),
        "histograms": histograms,
    }
    with open("histograms.json", "w", encoding="utf-8") as file:
        json.dump(result, file)
    print(f"{events} events from {os.environ['PILOTAGE_FIRST_EVENT']} on, seed {seed}, by {source.name}")


if __name__ == "__main__":
    main()
