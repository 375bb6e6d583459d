import './api/arrival'; // First of all: takes secrets out of the address.

import '@toolpost/approval-card/styles/tokens.css';
import '@toolpost/approval-card/styles/elements.css';
import { WholeText } from '@toolpost/approval-card/ui/Foreign';
import { CSPProvider } from '@base-ui/react/csp-provider';
import { Tooltip } from '@base-ui/react/tooltip';
import { QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';

import { queryClient } from './api/query-client';
import { redeemArrivedTicket } from './pages/sign-in/ticket';
import { router } from './routes';
import { listenToKeys } from './shell/keys';
import { applyPreferences } from './shell/preferences';
import './styles/base.css';
import { Toasts } from './ui/Toast';
import { lazyPart } from './ui/lazy-part';

const RawText = lazyPart(() => import('./ui/RawText'));

applyPreferences();
listenToKeys();
void redeemArrivedTicket();

const place = document.getElementById('root');
if (!place) throw new Error('index.html has no #root');
createRoot(place).render(
  <StrictMode>
    <CSPProvider disableStyleElements>
      <QueryClientProvider client={queryClient}>
        <Tooltip.Provider delay={400}>
          <WholeText value={(text, onClose) => <RawText text={text} onClose={onClose} />}>
            <Toasts>
              <RouterProvider router={router} />
            </Toasts>
          </WholeText>
        </Tooltip.Provider>
      </QueryClientProvider>
    </CSPProvider>
  </StrictMode>,
);
