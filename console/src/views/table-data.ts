/** Which results are tables, and their rows in order. */

import { ExactNumber, isObject, stringify, type Json, type JsonObject } from '../schema/json';

const LOOKED_AT = 200;

export interface TableData {
  columns: string[];
  rows: JsonObject[];
}

export interface Sorting {
  column: string;
  descending: boolean;
}

/** The rows of a list of objects, or of the one list that an object has; undefined for other values. */
export function tableOf(value: Json): TableData | undefined {
  if (Array.isArray(value)) return ofList(value);
  if (!isObject(value)) return undefined;
  const lists = Object.values(value).filter((one): one is Json[] => Array.isArray(one) && one.length > 0);
  const [only] = lists;
  return lists.length === 1 && only ? ofList(only) : undefined;
}

function ofList(list: Json[]): TableData | undefined {
  if (list.length === 0 || !list.every(isObject)) return undefined;
  const columns = new Set(list.slice(0, LOOKED_AT).flatMap((row) => Object.keys(row)));
  return { columns: [...columns], rows: list };
}

/** The rows by a column: numbers by value, texts by the reader's alphabet, what is missing last. */
export function sortRows(rows: JsonObject[], sorting: Sorting | undefined): JsonObject[] {
  if (!sorting) return rows;
  const { column, descending } = sorting;
  const sorted = [...rows].sort((a, b) => compare(a[column], b[column], descending));
  return sorted;
}

function compare(a: Json | undefined, b: Json | undefined, descending: boolean): number {
  const missing = Number(a === undefined || a === null) - Number(b === undefined || b === null);
  if (missing !== 0) return missing;
  const order = compareValues(a, b);
  return descending ? -order : order;
}

function compareValues(a: Json | undefined, b: Json | undefined): number {
  const [x, y] = [numeric(a), numeric(b)];
  if (x !== undefined && y !== undefined) return x - y;
  return cellText(a).localeCompare(cellText(b), undefined, { numeric: true });
}

function numeric(value: Json | undefined): number | undefined {
  if (value instanceof ExactNumber) return Number(value.text);
  return typeof value === 'number' ? value : undefined;
}

export function cellText(value: Json | undefined): string {
  if (value === undefined || value === null) return '';
  return typeof value === 'string' ? value : stringify(value);
}
