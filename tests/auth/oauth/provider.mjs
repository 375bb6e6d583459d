// node provider.mjs <entry of oidc-provider> <more clients as JSON> <seconds that access tokens last>
// An authorization server on a port of its own; its first line says where.
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const { Provider } = await import(pathToFileURL(process.argv[2]).href);
const clients = JSON.parse(process.argv[3] ?? '[]');
const accessTokenTTL = Number(process.argv[4] ?? 600);
const resource = 'http://127.0.0.1:9500/mcp';

function settings() {
  return {
    clients,
    scopes: ['openid', 'offline_access', 'tools.read', 'tools.call'],
    clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt'],
    pkce: { required: () => true },
    rotateRefreshToken: () => true,
    issueRefreshToken: async (_, client, code) =>
      client.grantTypeAllowed('refresh_token') && code.scopes.has('offline_access'),
    cookies: { keys: ['for-tests-only'] },
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true, initialAccessToken: false },
      revocation: { enabled: true },
      deviceFlow: { enabled: true },
      clientCredentials: { enabled: true },
      dPoP: { enabled: true, nonceSecret: Buffer.alloc(32, 7), requireNonce: () => true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        defaultResource: () => resource,
        getResourceServerInfo: () => ({
          scope: 'tools.read tools.call',
          accessTokenFormat: 'jwt',
          accessTokenTTL,
          jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
  };
}

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, settings());
  server.on('request', provider.callback());
  console.log(issuer);
});
