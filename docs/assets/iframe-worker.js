// A stand-in for Worker where the site is opened from the disk: browsers start no worker on
// file:// pages, and the search runs in one. The worker's script is run in a hidden frame of the
// page instead; a channel joins the two, and holds messages back until the script is there.
// Over http this does nothing. The search calls importScripts for languages other than English
// only; there is none here.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      const { port1: page, port2: worker } = new MessageChannel();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html>";
      frame.onload = () => {
        const inside = frame.contentWindow;
        const script = inside.document.createElement("script");
        inside.postMessage = (data) => worker.postMessage(data);
        script.src = new URL(address, document.baseURI);
        script.onload = () => {
          worker.onmessage = ({ data }) =>
            inside.dispatchEvent(new inside.MessageEvent("message", { data }));
        };
        inside.document.head.append(script);
      };
      document.body.append(frame);
      page.terminate = () => {
        page.close();
        frame.remove();
      };
      page.start();
      return page; // it has a worker's postMessage, onmessage and addEventListener
    }
  };
}
