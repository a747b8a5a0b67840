// Loads the parts of a page again that the server names as changed. Pauses while the page is hidden.
"use strict";
(() => {
  const FIRST_PAUSE = 1000;
  const LONGEST_PAUSE = 15000;
  let source = null;
  let watched = "";
  let pause = FIRST_PAUSE;
  let retry = 0;

  const parts = () => [...document.querySelectorAll("[data-live]")];
  const namesOf = (part) => part.dataset.live.split(" ");

  function close() {
    clearTimeout(retry);
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

  function tell(words) {
    const notice = document.createElement("p");
    notice.className = "notice";
    notice.textContent = words;
    document.getElementById("connection").replaceChildren(...(words ? [notice] : []));
  }

  // The server names all parts as changed after it has answered.
  function answered() {
    pause = FIRST_PAUSE;
    tell("");
  }

  function lost() {
    const address = source.url;
    close();
    retry = setTimeout(() => tryAgain(address), pause * (0.5 + Math.random()));
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  }

  // Without a session, or without the thing that the page shows, the page itself says what is the matter.
  async function refused() {
    const answer = await fetch(location.href, { redirect: "manual" }).catch(() => null);
    if (answer && answer.ok) tell("This page does not follow changes any more. Load it again.");
    else location.reload();
  }

  // An EventSource does not tell why it ended.
  async function tryAgain(address) {
    const asked = new AbortController();
    const answer = await fetch(address, { redirect: "manual", signal: asked.signal }).catch(() => null);
    asked.abort();
    if (source || document.hidden) return;
    if (answer && answer.ok) return connect();
    if (answer && (answer.type === "opaqueredirect" || [400, 403, 404].includes(answer.status))) return refused();
    tell("The server does not answer. This page goes on by itself when it does.");
    retry = setTimeout(() => tryAgain(address), pause);
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  }

  function connect() {
    const names = document.hidden ? "" : [...new Set(parts().flatMap(namesOf))].sort().join(" ");
    if (names === watched) return;
    close();
    if (!names) return;
    watched = names;
    const query = new URLSearchParams({ watch: names });
    source = new EventSource(`${document.documentElement.dataset.root}changes?${query}`);
    source.addEventListener("open", answered);
    source.addEventListener("changed", (event) => refresh(event.data));
    source.addEventListener("signed-out", () => location.reload());
    source.addEventListener("error", lost);
  }

  document.addEventListener("visibilitychange", connect);
  document.addEventListener("htmx:afterSettle", connect);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", connect);
  connect();
})();
