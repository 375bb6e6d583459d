export * from '@toolpost/approval-card/testing';
