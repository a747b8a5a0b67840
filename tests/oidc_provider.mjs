// An OpenID Connect provider for tests, on the library `oidc-provider`. Users and clients come from config.json.
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, file] = process.argv.slice(2);
const config = JSON.parse(readFileSync(file));
const { default: Provider } = await import(pathToFileURL(createRequire(`${modules}/`).resolve('oidc-provider')).href);

const account = (id) => config.users[id] ?? { groups: [] };
const claimsOf = (id) => ({ sub: id, preferred_username: id, 'wlcg.groups': account(id).groups });
const key = { ...generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' }), kid: config.kid, use: 'sig', alg: 'RS256' };

const provider = new Provider(config.issuer, {
  clients: config.clients,
  jwks: { keys: [key] },
  cookies: { keys: ['of a test'] },
  conformIdTokenClaims: false,
  expiresWithSession: () => false,
  scopes: ['openid', 'offline_access'],
  claims: { openid: ['sub', 'preferred_username', 'wlcg.groups'] },
  findAccount: (context, id) => ({ accountId: id, claims: () => claimsOf(id) }),
  extraTokenClaims: (context, token) => (token.accountId ? claimsOf(token.accountId) : { preferred_username: token.clientId, 'wlcg.groups': account(token.clientId).groups }),
  features: {
    devInteractions: { enabled: true },
    deviceFlow: { enabled: true },
    clientCredentials: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (context, client, one) => one ?? config.audience,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ audience: config.audience, scope: 'compute.read compute.create', accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } }),
    },
  },
});
provider.listen(Number(new URL(config.issuer).port), '127.0.0.1', () => console.log('ready'));
