// Loads the parts of a page again that the server names as changed. Pauses while the page is hidden.
"use strict";
(() => {
  let source = null;
  let watched = "";

  const parts = () => [...document.querySelectorAll("[data-live]")];
  const namesOf = (part) => part.dataset.live.split(" ");

  function close() {
    if (source) source.close();
    source = null;
    watched = "";
  }

  function refresh(name) {
    for (const part of parts()) {
      const busy = part.contains(document.activeElement) && document.activeElement.matches("input, select");
      if (!busy && (!name || namesOf(part).includes(name))) htmx.trigger(part, "changed");
    }
  }

  // The stream was refused: if the session is over, the page itself leads to the sign-in.
  async function refused() {
    close();
    const answer = await fetch(location.href, { redirect: "manual" }).catch(() => null);
    if (answer && answer.type === "opaqueredirect") location.reload();
  }

  function connect() {
    const names = document.hidden ? "" : [...new Set(parts().flatMap(namesOf))].sort().join(" ");
    if (names === watched) return;
    close();
    if (!names) return;
    watched = names;
    const query = new URLSearchParams({ watch: names });
    source = new EventSource(`${document.documentElement.dataset.root}changes?${query}`);
    source.addEventListener("changed", (event) => refresh(event.data));
    source.addEventListener("signed-out", () => location.reload());
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) refused();
    });
  }

  document.addEventListener("visibilitychange", connect);
  document.addEventListener("htmx:afterSettle", connect);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", connect);
  connect();
})();
