import reactHooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

const FORBIDDEN = [
  {
    selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
    message: 'Text of others is never parsed as HTML; use <Foreign>.',
  },
  {
    selector: "JSXOpeningElement[name.name=/^(style|iframe|script)$/]",
    message: 'The Content Security Policy forbids it.',
  },
  {
    selector: "MemberExpression[property.name=/^(innerHTML|outerHTML|insertAdjacentHTML)$/]",
    message: 'Trusted Types forbid it.',
  },
];

export default tseslint.config(
  { ignores: ['src/api/schema.d.ts'] },
  ...tseslint.configs.strictTypeChecked,
  reactHooks.configs.flat['recommended-latest'],
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      'no-restricted-syntax': ['error', ...FORBIDDEN],
      // Nothing is compiled by the React compiler.
      'react-hooks/incompatible-library': 'off',
      'no-console': 'error',
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { attributes: false } }],
    },
  },
);
