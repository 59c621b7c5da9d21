// Disjoint, ascending, non-adjacent half-open ranges of sequence numbers (BigInt).

export class Ranges {
  constructor() { this.all = []; }       // [first, end]

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

  add(first, end) {
    if (first >= end) return;
    const from = first > 0n ? this.#at(first - 1n) : 0;    // one that ends at `first` is adjacent
    let to = from;
    for (; to < this.all.length && this.all[to][0] <= end; to++) {
      if (this.all[to][0] < first) first = this.all[to][0];
      if (this.all[to][1] > end) end = this.all[to][1];
    }
    this.all.splice(from, to - from, [first, end]);
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
    this.all.splice(from, to - from, ...left);
    return taken;
  }
}
