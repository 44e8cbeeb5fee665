package hostmem

import "os"

// Discard returns the memory of the whole pages within b to the system and returns their size in bytes. b
// is memory of a [Block] and stays mapped: pages come back, with undefined contents, when they are
// written. Ledgers go on counting them. It returns 0 where the system cannot.
func Discard(b []byte) int64 {
	page := os.Getpagesize()
	begin := pageOffset(b, page)
	end := begin + max(0, len(b)-begin)/page*page
	if begin >= end || discard(b[begin:end]) != nil {
		return 0
	}
	return int64(end - begin)
}

// Touch brings the pages of b, which is memory of a [Block], in, so that the first writes do not wait
// while the system clears them. It changes no byte. It is a hint.
func Touch(b []byte) {
	page := os.Getpagesize()
	begin := pageOffset(b, page)
	if end := begin + max(0, len(b)-begin)/page*page; begin < end {
		touch(b[begin:end])
	}
}

// SmallPages makes the system use small pages for the whole pages within b, which is unused memory of a
// [Block]. Writing to the memory before b then allocates no part of b. It is a hint.
func SmallPages(b []byte) {
	page := os.Getpagesize()
	begin := pageOffset(b, page)
	if end := begin + max(0, len(b)-begin)/page*page; begin < end {
		adviseSmall(b[begin:end])
	}
}
