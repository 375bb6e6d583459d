export * from '@toolpost/approval-card/ui/json-tokens';
