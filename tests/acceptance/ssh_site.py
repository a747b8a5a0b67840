"""A server on a laptop's network, and a Slurm behind a login node that it reaches over ssh alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import slurm
from tests.acceptance.slurm_site import SlurmSite
from tests.acceptance.test_slurm import SLURM_CE
from tests.instance import Instance
from tests.namespaces import SERVER_ADDRESS, joined_namespaces, with_own_address
from tests.ssh_server import LoginNode, login_node


@dataclass
class SshSite(SlurmSite):
    """The cluster's client commands work on the login node only."""

    login: LoginNode

    def log_in(self) -> None:
        """Open the connection as a person does whose key needs no passphrase."""
        done = self.server.cli("ce", "login", "slurm")
        assert done.returncode == 0, done.stderr + (self.login.folder / "sshd.log").read_text()


@contextmanager
def ssh_site(folder: Path, *, hidden: bool = False, sshd: Sequence[str] = (), **ce: str) -> Iterator[SshSite]:
    """`ce` replaces keys of the CE slurm. The nodes are in the network of the login node.

    `hidden`: the nodes have no way to the server's address. `sshd`: options of the login node.
    """
    slurm.require()
    with (
        joined_namespaces() as (network, nodes),
        slurm.cluster(network=nodes) as cluster,
        login_node(nodes, *sshd) as login,
    ):
        server = Instance(folder)
        ce = {"reach": f'"{login.reach}"', **ce}
        lines = [line for line in SLURM_CE.splitlines() if line.partition(" =")[0] not in ce]
        section = "\n".join([*lines, *(f"{key} = {value}" for key, value in ce.items())])
        section += f'\n[ces.slurm.slurm]\nconf = "{cluster.environment["SLURM_CONF"]}"\n'
        begin, _, rest = server.policy.partition("[ces.local]")
        server.policy = begin + section + "[jobs]" + rest.partition("[jobs]")[2]
        server.network = network
        try:
            server.start("--listen", with_own_address(network) if hidden else SERVER_ADDRESS)
            document = folder / "policy.toml"
            document.write_text(server.policy)
            done = server.cli("policy", "apply", str(document))
            assert done.returncode == 0, done.stderr
            yield SshSite(server, cluster, network, login)
        finally:
            server.cli("ce", "login", "--close", "slurm")
            server.close()
            cluster.cancel_all()
