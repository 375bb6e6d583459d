// node proxy.mjs <certificate and key> <path prefix> <port of the gateway>
// A reverse proxy with TLS on a port of its own, which takes the prefix off the path; its first line says the port.
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { createServer } from 'node:https';
import { pipeline } from 'node:stream';

const [, , pem, prefix, gateway] = process.argv;
const key = readFileSync(pem);

function refuse(response, status) {
  response.writeHead(status, { 'Content-Type': 'text/plain' }).end(`proxy: ${status}\n`);
}

const server = createServer({ key, cert: key }, (incoming, response) => {
  if (!incoming.url.startsWith(`${prefix}/`)) return refuse(response, 404);
  const path = incoming.url.slice(prefix.length);
  const { method, headers } = incoming;
  const onward = request({ host: '127.0.0.1', port: gateway, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.rawHeaders);
    pipeline(answer, response, () => response.destroy());
  });
  onward.on('error', () => (response.headersSent ? response.destroy() : refuse(response, 502)));
  response.on('close', () => onward.destroy());
  incoming.pipe(onward);
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
