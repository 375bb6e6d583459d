export * from '@toolpost/approval-card/card/kinds';
