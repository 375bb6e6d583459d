import { lazy, type ComponentType, type FunctionComponent } from 'react';

const failed = new Set<() => void>();

/**
 * A page or a part of one whose file is loaded when it is shown. If that fails, `BrokenPage` says so and can try it
 * again; the document is not loaded again, because without a connection the browser would show a page of its own.
 */
export function lazyPart<Props extends object>(
  load: () => Promise<{ default: ComponentType<Props> }>,
): FunctionComponent<Props> & { preload: () => Promise<void> } {
  let Part = lazyOf();
  function lazyOf() {
    return lazy(() =>
      load().catch((error: unknown) => {
        failed.add(() => (Part = lazyOf()));
        throw error;
      }),
    ) as unknown as ComponentType<Props>;
  }
  function LazyPart(props: Props) {
    return <Part {...props} />;
  }
  return Object.assign(LazyPart, { preload: () => load().then(ignore, ignore) });
}

/** Let parts whose files could not be loaded try it again. */
export function retryParts(): void {
  for (const forget of failed) forget();
  failed.clear();
}

function ignore(): void {
  // What was not loaded is reported when it is shown.
}
