import { use, type ComponentType, type FunctionComponent } from 'react';

const failed = new Set<() => void>();

/**
 * A page or a part of one whose file is loaded when it is shown. If that fails, `BrokenPage` says so and can try it
 * again; the document is not loaded again, because without a connection the browser would show a page of its own.
 */
export function lazyPart<Props extends object>(
  load: () => Promise<{ default: ComponentType<Props> }>,
): FunctionComponent<Props> & { preload: () => Promise<void> } {
  let loading: Promise<ComponentType<Props>> | undefined;
  let loaded: ComponentType<Props> | undefined;
  function start() {
    loading ??= load().then(
      (file) => (loaded = file.default),
      (error: unknown) => {
        failed.add(() => (loading = undefined));
        throw error;
      },
    );
    return loading;
  }
  function LazyPart(props: Props) {
    const Part = loaded ?? use(start());
    return <Part {...props} />;
  }
  return Object.assign(LazyPart, { preload: () => start().then(ignore, ignore) });
}

/** Let parts whose files could not be loaded try it again. */
export function retryParts(): void {
  for (const forget of failed) forget();
  failed.clear();
}

function ignore(): void {
  // What was not loaded is reported when it is shown.
}
