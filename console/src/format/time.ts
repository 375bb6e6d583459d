export * from '@toolpost/approval-card/format/time';
