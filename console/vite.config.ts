import { fileURLToPath } from 'node:url';

import react from '@vitejs/plugin-react';
import { loadEnv } from 'vite';
import { defineConfig } from 'vitest/config';

// The sources of the card stand beside the console; their packages are the console's.
const CARD = fileURLToPath(new URL('../packages/approval-card/src', import.meta.url));

export default defineConfig(({ mode }) => {
  const gateway = loadEnv(mode, '.', 'TOOLPOST_').TOOLPOST_GATEWAY ?? 'http://127.0.0.1:7300';
  const proxied = { target: gateway, changeOrigin: true, headers: { origin: gateway } };
  return {
    plugins: [react()],
    resolve: { alias: { '@toolpost/approval-card': CARD }, dedupe: ['react', 'react-dom', 'diff', 'lucide-react'] },
    // Relative references, so that the console works behind a proxy that adds a path prefix.
    base: './',
    build: {
      outDir: '../src/toolpost/console/static',
      emptyOutDir: true,
      target: 'es2023',
      manifest: true,
      // The Content Security Policy allows neither data: addresses nor inline scripts.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      // What a first load may weigh is checked by tools/console_budget.py.
      chunkSizeWarningLimit: 1000,
    },
    server: {
      fs: { allow: ['.', CARD] },
      proxy: { '/api': proxied, '/oauth/start': proxied, '/sign-in/start': proxied },
    },
    test: {
      environment: 'happy-dom',
      include: ['src/**/*.test.{ts,tsx}', '../packages/approval-card/src/**/*.test.{ts,tsx}'],
      setupFiles: ['src/test-setup.ts'],
      restoreMocks: true,
    },
  };
});
