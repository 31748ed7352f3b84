// Shows for how long a question has run, and cancels it. A server kills a statement whose client left.
(function () {
  "use strict";
  let timer = null;

  function running(form) {
    return form.querySelector("[data-running]");
  }

  function tell(form, words) {
    form.querySelector("[data-cancelled]").textContent = words;
  }

  document.addEventListener("htmx:beforeRequest", function (event) {
    const form = event.detail.elt;
    if (!running(form)) { return; }
    const begun = Date.now();
    const shown = form.querySelector("[data-seconds]");
    const write = function () { shown.textContent = ((Date.now() - begun) / 1000).toFixed(1) + " s"; };
    tell(form, "");
    write();
    running(form).hidden = false;
    clearInterval(timer);
    timer = setInterval(write, 100);
  });

  document.addEventListener("htmx:afterRequest", function (event) {
    const form = event.detail.elt;
    if (!running(form)) { return; }
    clearInterval(timer);
    running(form).hidden = true;
  });

  document.addEventListener("htmx:sendError", function (event) {
    if (running(event.detail.elt)) { tell(event.detail.elt, "The server did not answer. Try again."); }
  });

  document.addEventListener("click", function (event) {
    const button = event.target.closest("[data-cancel]");
    if (!button) { return; }
    const form = button.closest("form");
    const shown = form.querySelector("[data-seconds]").textContent;
    window.htmx.trigger(form, "htmx:abort");
    tell(form, "Cancelled after " + shown + ".");
    form.querySelector("[data-ask]").focus();
  });
}());
