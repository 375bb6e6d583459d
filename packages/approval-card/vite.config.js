/**
 * The built package: an ES module for bundlers, and with `--mode global` a script that takes the global `React`, for pages
 * without a bundler. Both have the same styles, which hold inside of a card alone.
 */

const scopedStyles = {
  name: 'scoped-styles',
  enforce: 'pre',
  transform(code, id) {
    // The tokens stay under :root, which has the theme, but belong to the cards inside of it.
    if (id.endsWith('styles/tokens.css')) return code.replace(/:root((?::not\(.*?\)|\[.*?\])*)(?= \{)/g, ':root$1 .toolpost-card');
    // Above the elements of the page, below the classes of the card.
    if (id.endsWith('styles/elements.css')) return `article:where(.toolpost-card) {\n${code}\n}`;
    return null;
  },
};

export default ({ mode }) => ({
  plugins: [scopedStyles],
  // React.createElement is there in every version of React, and in the global one.
  oxc: { jsx: { runtime: 'classic' }, jsxInject: "import * as React from 'react'" },
  build: {
    target: 'es2022',
    emptyOutDir: mode !== 'global',
    // The global script contains its dependencies.
    license: mode === 'global' && { fileName: 'THIRD_PARTY_LICENSES.md' },
    lib: {
      entry: 'src/standalone.ts',
      formats: [mode === 'global' ? 'iife' : 'es'],
      name: 'ToolpostApprovalCard',
      fileName: () => (mode === 'global' ? 'approval-card.global.js' : 'approval-card.js'),
      cssFileName: 'approval-card',
    },
    rollupOptions: {
      external: mode === 'global' ? ['react'] : ['react', 'diff', 'lucide-react'],
      output: { globals: { react: 'React' } },
    },
  },
});
