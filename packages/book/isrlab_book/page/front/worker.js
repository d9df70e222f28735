// Python in a worker. It is started from a blob, and so has the page's content security policy: it
// can reach the page's own site, and nothing else. Each message gets an answer. While none comes,
// the remaining work is done in pieces; each is announced, so that the page notices one that never
// ends.

const MOST_MEMORY = 1.6e9; // bytes of Python's memory, above which the page restarts this worker
let python, playground, dropped, waiting;
let pace = 0; // ms that recent answers took: other work waits, so that quick choices need not

async function unpacked(url) {
  const answer = await get(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return answer.body.pipeThrough(new DecompressionStream("gzip"));
}

const get = self.fetch.bind(self);

async function begin({ pyodide, archive, logs }) {
  const files = unpacked(archive).then((stream) => new Response(stream).arrayBuffer());
  const wasm = { headers: { "Content-Type": "application/wasm" } };
  self.fetch = (url, how) => String(url.url || url).endsWith(".wasm")
    ? unpacked(`${pyodide}pyodide.asm.wasm.bin`).then((stream) => new Response(stream, wasm))
    : get(url, how);
  const { loadPyodide } = await import(`${pyodide}pyodide.js`);
  python = await loadPyodide({ indexURL: pyodide });
  install(await files);
  if (logs) {
    python.pyimport("gc").disable(); // saves a seventh of the time; this worker gives one answer
    dropped = python.pyimport("isrlab_book.page.dropped").DroppedFiles();
  }
  else playground = python.pyimport("isrlab_book.page.playing").Playground();
}

// The archive: the size of an index, the index (JSON with the length of each file), then the files.
function install(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const index = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const root = "/lib/python3.14/site-packages/";
  let at = 4 + size;
  for (const [name, length] of Object.entries(index)) {
    python.FS.mkdirTree(root + name.slice(0, name.lastIndexOf("/") + 1));
    python.FS.writeFile(root + name, new Uint8Array(buffer, at, length));
    at += length;
  }
}

function later(wait_ms) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    postMessage({ busy: true });
    const more = playground.more();
    postMessage({ more, memory: python._module.HEAPU8.length > MOST_MEMORY });
    if (more) later(0);
  }, wait_ms);
}

async function read(files) {
  let [done, all] = [0, files.reduce((sum, { file }) => sum + file.size, 0)];
  for (const { file, name } of files) {
    for (let at = 0; at < file.size; at += 4e6) {
      const piece = new Uint8Array(await file.slice(at, at + 4e6).arrayBuffer());
      dropped.feed(name, python.toPy(piece));
      postMessage({ share: 0.2 * (done += piece.length) / all, doing: "copying" });
    }
  }
  const answer = dropped.finish((share, doing) => postMessage({ share: 0.2 + 0.8 * share, doing }));
  postMessage({ answer: { title: answer.title, text: answer.text, leftOut: answer.left_out } });
}

self.onmessage = async ({ data }) => {
  try {
    if (data.begin) {
      await begin(data.begin);
      postMessage({ ready: true });
    } else if (data.files) await read(data.files);
    else {
      const begun = performance.now();
      postMessage({ id: data.id, answer: playground.ask(data.ask) });
      pace = Math.max(performance.now() - begun, 0.8 * pace); // each version is as slow
      later(Math.min(2000, 5 * pace));
    }
  } catch (error) {
    postMessage({ failed: String(error.message || error).trim().split("\n").pop().slice(0, 400) });
  }
};
