"""Weighted selection: the threshold at which the heaviest losses use up a given weight.

    find t with   Σ_{f > t} w  <=  target  <=  Σ_{f >= t} w

A few entries are ranked one by one, which vector units do faster than any sort. Among entries that fit into
the fastest caches, passes narrow a bracket of t until few are inside. Among more, a stratified sample
brackets t, one pass keeps the entries inside the bracket, and the search goes on among those: about 1.2
passes over the data in all, against log N for a sort. The sample is the same in every call, so an input can
be made for which it never helps: what is left after MISSES brackets is searched digit by digit, which takes
at most twelve passes for any input.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import comparing, kernel, summing
from uncertainty_sets.kernels.scan import larger, largest, smaller

IN_TURN = 16  # up to this many entries, from the first to the last: any order is as fast
ALONE = 128  # up to this many entries, rank one after the other at once
FEW = 1024  # up to this many entries of a bracket, rank one after the other
TRIES = 64  # entries that are ranked at most, about 2·log N in any ordinary order; then sort
AIM = 12.0  # entries in a bracket that are few enough to end the passes
CACHED = 4096  # up to this many entries, passes over f and w cost less than moving entries about
CUTS, IDLE = 16, 2  # such passes at most, and those among them that leave the bracket's entries as they are
SAMPLE = 2048  # entries sampled at most
MISSES = 1  # brackets that may fail before the search goes by digits
DIGIT = 11  # bits; the buckets of one digit stay in the fastest cache
SIGN = np.uint64(1 << 63)


@kernel
def insert_pairs(key: Array, weight: Array, left: int, right: int) -> None:
    """Sort key[left..right] downwards in place by insertion, weight along with it."""
    for i in range(left + 1, right + 1):
        k, w, j = key[i], weight[i], i - 1
        while j >= left and key[j] < k:
            key[j + 1], weight[j + 1] = key[j], weight[j]
            j -= 1
        key[j + 1], weight[j + 1] = k, w


@kernel
def heap_pairs(key: Array, weight: Array, left: int, right: int) -> None:
    """Sort the same by a heap, for orders on which quicksort's pivots are bad."""
    size = right - left + 1
    for turn in range(size // 2 + size):
        # Build the heap from the last parent to the root; then move the smallest to the end, one by one.
        root, last = size // 2 - 1 - turn, size
        if root < 0:
            root, last = 0, size // 2 + size - 1 - turn
            key[left], key[left + last] = key[left + last], key[left]
            weight[left], weight[left + last] = weight[left + last], weight[left]
        k, w = key[left + root], weight[left + root]
        while 2 * root + 1 < last:
            child = 2 * root + 1
            if child + 1 < last and key[left + child + 1] < key[left + child]:
                child += 1
            if key[left + child] >= k:
                break
            key[left + root], weight[left + root] = key[left + child], weight[left + child]
            root = child
        key[left + root], weight[left + root] = k, w


@kernel
def sort_pairs(key: Array, weight: Array, count: int) -> None:
    """Sort key[:count] downwards in place, weight along with it."""
    # 1. Few entries: insertion alone.
    if count <= 20:
        insert_pairs(key, weight, 0, count - 1)
        return
    stack = np.empty((64, 2), np.int64)
    top, splits, limit = 0, 0, 8 * count // 16  # a fair pivot splits about count/16 times in all
    left, right = 0, count - 1
    while True:
        while right - left > 16:
            # 2. Too many splits mean bad pivots: a heap sorts this part.
            splits += 1
            if splits > limit:
                heap_pairs(key, weight, left, right)
                break
            # 3. Split at the median of three; the longer side waits on the stack, which stays shallow so.
            a, b, c = key[left], key[(left + right) // 2], key[right]
            pivot = max(min(a, b), min(max(a, b), c))
            i, j = left, right
            while i <= j:
                while key[i] > pivot:
                    i += 1
                while key[j] < pivot:
                    j -= 1
                if i <= j:
                    key[i], key[j] = key[j], key[i]
                    weight[i], weight[j] = weight[j], weight[i]
                    i += 1
                    j -= 1
            if j - left > right - i:
                stack[top, 0], stack[top, 1] = left, j
                left = i
            else:
                stack[top, 0], stack[top, 1] = i, right
                right = j
            top += 1
        # 4. Short parts by insertion; then the next one from the stack.
        insert_pairs(key, weight, left, right)
        if top == 0:
            return
        top -= 1
        left, right = stack[top, 0], stack[top, 1]


@kernel
def gather(
    f: Array, w: Array, count: int, low: float, high: float, keys: Array, weights: Array
) -> tuple[int, float, float]:
    """Keep the entries with low <= f <= high and w > 0; return how many, their weight, the weight above.

    `keys` and `weights` may be f and w themselves.
    """
    kept, inside, above = 0, 0.0, 0.0
    for i in range(count):
        v, x = f[i], w[i]
        keys[kept], weights[kept] = v, x
        keep = (v >= low) & (v <= high) & (x > 0.0)
        kept += keep
        inside += x if keep else 0.0
        above += x if v > high else 0.0
    return kept, inside, above


@kernel
def bracket(
    f: Array, w: Array, count: int, target: float, keys: Array, weights: Array
) -> tuple[float, float, float]:
    """A likely bracket (low, high) of the threshold and a pivot inside it, from a stratified sample."""
    # 1. One entry at random (xorshift) from each of `size` equal strata.
    size = min(SAMPLE, count // 16)
    state = np.uint64(88172645463325252)
    total, squares = 0.0, 0.0
    for i in range(size):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        first, after = i * count // size, (i + 1) * count // size
        j = first + int(state % np.uint64(after - first))
        keys[i], weights[i] = f[j], w[j]
        total += w[j]
        squares += w[j] * w[j]
    # 2. The sample's ranks around the target, with 1.5 standard deviations of a sampled sum to either side.
    sort_pairs(keys, weights, size)
    aim = target * size / count
    margin = 1.5 * np.sqrt(squares)
    high, low, pivot = np.inf, -np.inf, keys[size // 2]
    passed, seen = 0.0, False
    for i in range(size):
        if passed < aim - margin:
            high = keys[i]
        passed += weights[i]
        if passed >= aim and not seen:
            pivot, seen = keys[i], True
        if passed > aim + margin:
            low = keys[i]
            break
    return low, high, pivot


@summing
def ranked(f: Array, w: Array, level: float) -> tuple[float, float]:
    """The weight above and at a level."""
    above, at = 0.0, 0.0
    for j in range(f.size):
        above += w[j] if f[j] > level else 0.0
        at += w[j] if f[j] == level else 0.0
    return above, at


@kernel
def threshold_of_few(f: Array, w: Array, target: float) -> tuple[float, float, float, bool]:
    """`threshold` by ranking single entries, each in a pass on vector units; and whether TRIES were enough.

    t is the lowest level with no more than the target above it. The weight above cannot decide which level
    is lower: a weight of 1e-20 does not change it. Only levels between those that are known to be too low
    and the lowest one that is not are ranked: about 2·log N. The order in which entries are tried
    halves the array again and again, so that sorted entries are bisected.
    """
    t, above, at = np.inf, 0.0, 0.0
    low, tries, gap = -np.inf, 0, 2
    while gap < f.size:
        gap *= 2
    if f.size <= IN_TURN:
        gap = 1
    while gap > 0:
        # The places gap/2, 3·gap/2, 5·gap/2 ...; place 0 comes last, with a gap of 1. (A range with such a
        # step would divide to count them, which takes longer than a visit.)
        i, after = gap >> 1, f.size if gap > 1 or f.size <= IN_TURN else 1
        while i < after:
            if f[i] < t and f[i] > low and w[i] > 0.0:
                higher, equal = ranked(f, w, f[i])
                tries += 1
                if higher <= target:
                    t, above, at = f[i], higher, equal
                else:
                    low = f[i]
                if tries == TRIES:
                    return t, above, at, False
            i += gap
        gap >>= 1
    return (t if t < np.inf else largest(f)), above, at, True


@comparing
def next_below(f: Array, w: Array, t: float) -> float:
    """The largest level below t that has a weight; -∞ if there is none."""
    level = -np.inf
    for i in range(f.size):
        level = larger(level, f[i] if (f[i] < t) & (w[i] > 0.0) else -np.inf)
    return level


@summing
def weight_at(f: Array, w: Array, level: float) -> float:
    """The weight at a level."""
    at = 0.0
    for i in range(f.size):
        at += w[i] if f[i] == level else 0.0
    return at


@kernel
def threshold_of_very_few(f: Array, w: Array, target: float) -> tuple[float, float, float]:
    """`threshold` by going down from level to level: so few entries do not fill the vector units."""
    t, above, at = np.inf, 0.0, 0.0
    while above + at <= target:
        level = next_below(f, w, t)
        if level == -np.inf:  # none is left
            break
        t, above, at = level, above + at, weight_at(f, w, level)
    return (t if t < np.inf else largest(f)), above, at


@summing
def extent(f: Array, w: Array) -> tuple[float, float, float]:
    """min f, max f and Σw."""
    least, most, total = f[0], f[0], 0.0
    for i in range(f.size):
        least = smaller(least, f[i])
        most = larger(most, f[i])
        total += w[i]
    return least, most, total


@summing
def beyond(f: Array, w: Array, level: float) -> tuple[float, float]:
    """The weight and the number of the entries above a level."""
    above, count = 0.0, 0.0
    for i in range(f.size):
        above += w[i] if f[i] > level else 0.0
        count += 1.0 if f[i] > level else 0.0
    return above, count


@kernel
def between(f: Array, low: float, high: float, start: int) -> int:
    """The place of an entry strictly inside the bracket; -1 if none of 32 entries from all over f is."""
    place, stride = start, int(0.6180339887 * f.size) + 1
    for _ in range(32):
        place += stride
        place -= f.size if place >= f.size else 0
        if f[place] > low and f[place] < high:
            return place
    return -1


@kernel
def narrow(f: Array, w: Array, target: float) -> tuple[float, float]:
    """(low, high) with the threshold in (low, high], and with few entries there if that takes few passes.

    A pass counts what lies above a level: the one at which the weight above, interpolated, is the target. If
    the last pass did not halve the entries, losses are far from evenly spread: the level of one of them then.
    low is -∞ if the target is not below the total.
    """
    least, high, total = extent(f, w)
    low, over = -np.inf, 0.0
    if total <= target:
        return low, high
    heavy, inside, start = total, float(f.size), 0.0  # above low; entries in (low, high]; entries above high
    bottom, halved, idle, place = least, True, 0, 0
    for _ in range(CUTS):
        level = bottom + (high - bottom) * ((heavy - target) / (heavy - over) if halved else 0.5)
        if not halved:
            found = between(f, low, high, place)
            if found >= 0:
                level, place = f[found], found
        if not (level > low and level < high):
            break
        above, count = beyond(f, w, level)
        before = inside
        if above > target:
            low, bottom, heavy = level, level, above
            inside = count - start
        else:
            inside -= count - start
            high, over, start = level, above, count
        halved = inside <= 0.5 * before
        idle += inside == before
        if inside <= AIM or idle == IDLE:
            break
    return low, high


@kernel
def rank_bits(value: np.uint64) -> np.uint64:
    """A double's bits as a number in the order of the doubles (0.0 above -0.0)."""
    return ~value if value & SIGN else value | SIGN


@kernel
def threshold_by_digits(
    keys: Array, weights: Array, count: int, target: float, above: float
) -> tuple[float, float, float]:
    """`threshold` among keys[:count], the weight `above` lying higher: bucket by bucket from the first digit.

    All weights are positive; keys and weights are overwritten. Two passes a digit over what is left, and six
    digits at most.
    """
    # 1. -0.0 becomes 0.0, which compares equal to it and has other bits.
    for i in range(count):
        keys[i] += 0.0
    bits = keys.view(np.uint64)
    buckets = np.empty(1 << DIGIT)
    mask = np.uint64((1 << DIGIT) - 1)
    for shift in (53, 42, 31, 20, 9, 0):
        # 2. The weight of each value of this digit.
        places = np.uint64(shift)
        buckets[:] = 0.0
        lowest = buckets.size - 1
        for i in range(count):
            digit = int((rank_bits(bits[i]) >> places) & mask)
            buckets[digit] += weights[i]
            lowest = min(lowest, digit)
        # 3. From the highest bucket down to the one in which the target is reached.
        digit = buckets.size - 1
        while digit > lowest and (buckets[digit] == 0.0 or above + buckets[digit] < target):
            above += buckets[digit]
            digit -= 1
        # 4. Keep the entries of that bucket.
        kept = 0
        for i in range(count):
            keys[kept], weights[kept] = keys[i], weights[i]
            kept += int((rank_bits(bits[kept]) >> places) & mask) == digit
        count = kept
    at = 0.0
    for i in range(count):
        at += weights[i]
    return keys[0], above, at


@kernel
def work_space(n: int) -> tuple[Array, Array, Array]:
    """The keys, weights and sample of `threshold` for up to n entries."""
    return np.empty(n), np.empty(n), np.empty((2, SAMPLE if n > FEW else 1))


@kernel
def threshold(
    f: Array, w: Array, target: float, keys: Array, weights: Array, sample: Array
) -> tuple[float, float, float]:
    """(t, weight above t, weight at t); every entry counts as taken if the target exceeds the total.

    keys, weights and sample are work space, at least as long as that for f's length.
    """
    # A function of its own: what the long way does to its arrays takes a short row longer than the selection.
    if f.size <= IN_TURN:
        return threshold_of_very_few(f, w, target)
    return threshold_of_more(f, w, target, keys, weights, sample)


@kernel
def threshold_of_more(
    f: Array, w: Array, target: float, keys: Array, weights: Array, sample: Array
) -> tuple[float, float, float]:
    """`threshold` of any number of entries."""
    # 1. Few entries: rank one after the other.
    if f.size <= ALONE:
        t, over, at, ended = threshold_of_few(f, w, target)
        if ended:
            return t, over, at
    low, high = -np.inf, np.inf
    above = 0.0
    n = f.size
    kept, misses = n, 0
    whole = True  # the candidates are still all of f, not yet what was gathered
    if ALONE < n <= CACHED:
        # 2. Everything in the cache: narrow the bracket by passes.
        a, b = narrow(f, w, target)
        if a > -np.inf:
            low, high, whole = np.nextafter(a, np.inf), b, False
            kept, inside, above = gather(f, w, n, low, high, keys, weights)
            if kept > ALONE:
                least, most, _ = extent(keys[:kept], weights[:kept])
                if least == most:
                    return most, above, inside
    while kept > FEW:
        # 3. A sample's bracket of the threshold; keep what is inside if it holds and helps.
        source, mass = (f, w) if whole else (keys, weights)
        a, b, pivot = bracket(source, mass, kept, target - above, sample[0], sample[1])
        a, b = max(a, low), min(b, high)
        found, inside, over = gather(source, mass, kept, a, b, keys, weights)
        if above + over <= target <= above + over + inside and found < 0.7 * kept:
            low, high, above, kept, whole = a, b, above + over, found, False
            if a == b:
                return a, above, inside
            continue
        # 4. It missed or did not help (ties): split at the pivot, starting from all of f again.
        misses += 1
        found, at, over = gather(f, w, n, pivot, pivot, keys, weights)
        if over > target:
            low = np.nextafter(pivot, np.inf)
        elif over + at >= target:
            return pivot, over, at
        else:
            high = np.nextafter(pivot, -np.inf)
        kept, inside, above = gather(f, w, n, low, high, keys, weights)
        whole = False
        # 5. Missed too often: go by digits.
        if misses > MISSES and kept > FEW:
            return threshold_by_digits(keys, weights, kept, target, above)
    # 6. Few are left: rank them as well.
    if whole:
        kept, inside, above = gather(f, w, n, low, high, keys, weights)
    if kept == 0:
        return (high if high < np.inf else largest(f)), above, 0.0
    if not whole:
        t, over, at, ended = threshold_of_few(keys[:kept], weights[:kept], max(0.0, target - above))
        if ended:
            return t, above + over, at
    # 7. An order in which ranking takes too long: sort them and walk down to the target.
    sort_pairs(keys, weights, kept)
    at = 0.0
    for i in range(kept):
        if i > 0 and keys[i] != keys[i - 1]:
            if above + at >= target:
                return keys[i - 1], above, at
            above += at
            at = 0.0
        at += weights[i]
    return keys[kept - 1], above, at


@kernel
def share_of(rest: float, at: float) -> float:
    """The part of the weight at the threshold that is taken, in [0, 1]."""
    return min(1.0, max(0.0, rest / at)) if at > 0.0 else 0.0
