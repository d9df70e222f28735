// Keeps the files of one version of the page, so that it also opens without a network. The build
// puts the version and its files above. A new version waits until the old one is closed.
self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(VERSION).then((cache) => cache.addAll(FILES)));
});
self.addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith("isrlab-") && name !== VERSION;
  event.waitUntil(caches.keys()
    .then((names) => Promise.all(names.filter(isOld).map((name) => caches.delete(name))))
    .then(() => self.clients.claim()));
});
self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  event.respondWith(caches.open(VERSION).then((cache) => cache.match(event.request, { ignoreVary: true }))
    .then((kept) => kept || fetch(event.request)));
});
