export * from '@toolpost/approval-card/format/json';
