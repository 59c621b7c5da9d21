// Disjoint, ascending, non-adjacent half-open ranges of sequence numbers (BigInt).

export class Ranges {
  // `kept.count`: how many ranges this and other sets have together.
  constructor(kept = { count: 0 }) {
    this.all = [];                       // [first, end]
    this.kept = kept;
  }

  // The index of the first range whose end is above a number.
  #at(number) {
    let low = 0, high = this.all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.all[middle][1] > number) high = middle; else low = middle + 1;
    }
    return low;
  }

  get count() { return this.all.length; }

  has(number) { return this.endOf(number) !== null; }

  // The end of the range that a number is in, or null.
  endOf(number) {
    const range = this.all[this.#at(number)];
    return range && range[0] <= number ? range[1] : null;
  }

  // Whether a range goes on before and behind these numbers, so that it would be two without them.
  isCutBy(first, end) {
    const range = this.all[this.#at(first)];
    return range !== undefined && range[0] < first && end < range[1];
  }

  add(first, end) {
    if (first >= end) return;
    const from = first > 0n ? this.#at(first - 1n) : 0;    // one that ends at `first` is adjacent
    let to = from;
    for (; to < this.all.length && this.all[to][0] <= end; to++) {
      if (this.all[to][0] < first) first = this.all[to][0];
      if (this.all[to][1] > end) end = this.all[to][1];
    }
    this.#replace(from, to - from, [[first, end]]);
  }

  dropFirst() { this.#replace(0, 1, []); }

  // Drops the ranges that end at a number or below it; the last range stays.
  dropBelow(number) { this.#replace(0, Math.min(this.#at(number), Math.max(0, this.count - 1)), []); }

  #replace(from, count, ranges) {
    this.kept.count += ranges.length - this.all.splice(from, count, ...ranges).length;
  }

  // Takes out what of these numbers is in it, and returns that as a list of ranges.
  take(first, end) {
    const from = this.#at(first), taken = [], left = [];
    let to = from;
    for (; to < this.all.length && this.all[to][0] < end; to++) {
      const [low, high] = this.all[to];
      if (low < first) left.push([low, first]);
      if (high > end) left.push([end, high]);
      taken.push([low < first ? first : low, high > end ? end : high]);
    }
    this.#replace(from, to - from, left);
    return taken;
  }
}
