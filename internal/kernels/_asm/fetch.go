package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A kernel that prefetches is emitted several times behind one entry point: as compiled, with
// no-operations in place of the prefetches, and, where the C source uses DISTANCE, compiled with
// NEAR. A byte of prefetchFlags, that of the kernel's role, says which one runs. The arithmetic is
// the same, and so are its results.
const prefetchFlags = "github·com∕heftai∕heft∕internal∕kernels∕fetch·prefetch"

// plainFlag is the flag for no prefetch. Flag 0 is the usual distance, and other flags are the
// near one. Package fetch has the same constants.
const plainFlag = 1

// roles lists the roles of package fetch in their order, with the names of their kernels. The
// first match counts. A kernel that matches none has the role of several tokens. AMX kernels
// always prefetch, because only Intel's processors have AMX.
var roles = []struct {
	role    int
	kernels *regexp.Regexp
}{
	{7, regexp.MustCompile(`^roofRead`)},
	{9, regexp.MustCompile(`[Pp]ack|LineParts|ColumnParts|Half(Columns|Lines)|WidenColumns|Spread|BandPanel|^avx\d+(Lines|Columns)$`)},
	{8, regexp.MustCompile(`MXFP4`)},
	{5, regexp.MustCompile(`E4M3`)},
	{6, regexp.MustCompile(`Scores|Weigh|AddLanes`)},
	{11, regexp.MustCompile(`CodedPairs`)},
	{13, regexp.MustCompile(`CodedTokens`)},
	{12, regexp.MustCompile(`CodedSplit`)},
	{0, regexp.MustCompile(`^avx\d+(Mul(BF16|F16|F32)1|MulSplit1|SplitOne|SmallBatch\dx1)(x\d)?$`)},
	{1, regexp.MustCompile(`^avx512bf16Dot1`)},
	{10, regexp.MustCompile(`^avx512bf16(Dot|Pieces)[2-8]$`)},
	{2, regexp.MustCompile(`(Mul|InterleavedSums)Q8\dx1$|DotQ8`)},
	{3, regexp.MustCompile(`(Mul|InterleavedSums)Q4\dx1$|DotQ4`)},
}

const severalTokens = 4

func roleOf(kernel string) int {
	for _, r := range roles {
		if r.kernels.MatchString(kernel) {
			return r.role
		}
	}
	return severalTokens
}

// instruction matches a line of a listing: the address and the mnemonic.
var instruction = regexp.MustCompile(`(?m)^ *([0-9a-f]+):\s+(\w+)`)

// A span is the byte range of one instruction in a function.
type span struct{ from, to int }

// nops are the no-operation instructions of 1 to 9 bytes.
var nops = [...]string{
	1: "\x90", 2: "\x66\x90", 3: "\x0f\x1f\x00", 4: "\x0f\x1f\x40\x00", 5: "\x0f\x1f\x44\x00\x00",
	6: "\x66\x0f\x1f\x44\x00\x00", 7: "\x0f\x1f\x80\x00\x00\x00\x00", 8: "\x0f\x1f\x84\x00\x00\x00\x00\x00",
	9: "\x66\x0f\x1f\x84\x00\x00\x00\x00\x00",
}

// without returns code with the instructions at places replaced by no-operations.
func without(code []byte, places []span) []byte {
	code = bytes.Clone(code)
	for _, s := range places {
		copy(code[s.from:s.to], nops[s.to-s.from])
	}
	return code
}

// prefetchesOf returns the prefetch instructions of a listing.
func prefetchesOf(listing string) ([]span, error) {
	var spans []span
	open := -1 // where a prefetch begins
	for _, m := range instruction.FindAllStringSubmatch(listing, -1) {
		at, err := strconv.ParseInt(m[1], 16, 32)
		if err != nil {
			return nil, err
		}
		if open >= 0 {
			if length := int(at) - open; length >= len(nops) {
				return nil, fmt.Errorf("a prefetch of %d bytes, want at most %d", length, len(nops)-1)
			}
			spans, open = append(spans, span{open, int(at)}), -1
		}
		if strings.HasPrefix(m[2], "prefetch") {
			open = int(at)
		}
	}
	return spans, nil
}
