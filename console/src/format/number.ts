export * from '@toolpost/approval-card/format/number';
