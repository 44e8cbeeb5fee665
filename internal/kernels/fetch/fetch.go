// Package fetch controls how kernels read weights from memory: how many rows at a time, whether
// they prefetch by software, and how far ahead.
//
// A [Pattern] is one way to read, a [Role] is a group of kernels that read alike, and a [Plan]
// has one pattern for each role. A pattern changes the speed of a kernel but not its results. A
// plan may therefore change at any time, even while kernels run. Which pattern is fastest depends
// on the processor: 8 rows with prefetch on Intel's Sapphire Rapids, 1 row without on AMD's Zen
// 4. Package tune measures it.
//
// The process has one plan, because all threads share one memory. Kernels read it at each call:
// Go code by [Rows], generated assembly by the flags in this package.
package fetch

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// A Role is a group of kernels that read memory alike.
type Role uint8

// The roles. The assembly generator depends on their order.
const (
	Floats      Role = iota // bfloat16, float16 and float32 weights, one token
	Pairs                   // bfloat16 weights times activations rounded to bfloat16, one token
	Q8                      // Q8 weights, one token
	Q4                      // Q4 weights, one token
	Tokens                  // weights of these formats with several tokens
	Codes                   // FP8 weights
	Cache                   // cached keys and values
	Roof                    // the probe that reads memory and computes nothing
	MXFP4                   // MXFP4 weights
	Packing                 // weights and activations that are packed or widened for prompts and training
	PairTokens              // bfloat16 weights times activations of several tokens rounded to bfloat16
	CodedPairs              // coded bfloat16 weights times activations rounded to bfloat16, one token
	CodedFloats             // coded bfloat16 weights, one token
	CodedTokens             // coded bfloat16 weights times activations of several tokens rounded to bfloat16
	Roles
)

var roleNames = [Roles]string{"floats", "pairs", "q8", "q4", "tokens", "codes", "cache", "roof", "mxfp4", "packing", "pair_tokens", "coded_pairs", "coded_floats", "coded_tokens"}

// String returns the name of r used in files and in JSON.
func (r Role) String() string {
	if r >= Roles {
		return fmt.Sprintf("Role(%d)", uint8(r))
	}
	return roleNames[r]
}

// A Pattern is one way to read weights.
type Pattern struct {
	// Rows is the number of rows, or of packed blocks of rows, read at a time: 8, 4 or 1. It is 0
	// for roles whose kernels have only one number of rows.
	Rows int `json:"rows,omitempty"`
	// Prefetch reports whether each cache line is prefetched by software before it is used. The
	// distance is about 1 KiB. It is some 4 KiB for interleaved q8_0 and q4_0, 2 KiB for single
	// rows in products of pairs, and 6 KiB, into the second-level cache, for single coded rows.
	Prefetch bool `json:"prefetch"`
	// Near reports whether the distance is a quarter of that.
	Near bool `json:"near,omitempty"`
	// Pieces reports whether two dozen rows are read in pieces of 1.4 KiB, so that the tokens' part
	// stays in the first-level cache, instead of each row from its first byte to its last.
	Pieces bool `json:"pieces,omitempty"`
	// Whole reports whether rows are packed from the first byte to the last, in the order of
	// memory, and prefetched 8 KiB ahead into the second-level cache, instead of in pieces of 1
	// KiB of 16 rows.
	Whole bool `json:"whole,omitempty"`
}

// String returns a description such as "8 rows, prefetch".
func (p Pattern) String() string {
	rows := ""
	switch p.Rows {
	case 0:
	case 1:
		rows = "1 row, "
	default:
		rows = fmt.Sprintf("%d rows, ", p.Rows)
	}
	switch {
	case p.Pieces:
		return rows + "pieces, prefetch"
	case p.Whole:
		return rows + "whole rows, prefetch"
	case p.Near:
		return rows + "near prefetch"
	case p.Prefetch:
		return rows + "prefetch"
	}
	return rows + "no prefetch"
}

// A Plan has a pattern for each role.
type Plan [Roles]Pattern

// candidates lists the patterns of each role's kernels, the default for Intel first.
var candidates = [Roles][]Pattern{
	Floats:     patterns(true, 8, 4, 1),
	Pairs:      patterns(false, 4, 1),
	Q8:         patterns(true, 8, 4, 1),
	Q4:         patterns(true, 8, 4, 1),
	Tokens:     patterns(false, 0),
	Codes:      patterns(true, 0),
	Cache:      patterns(false, 0),
	Roof:       patterns(true, 8, 1),
	MXFP4:      patterns(true, 0),
	Packing:    append(patterns(false, 0), wholeRows),
	PairTokens: append(patterns(false, 0), inPieces),

	CodedPairs:  patterns(false, 8, 4, 1),
	CodedFloats: patterns(false, 8, 4, 1),
	CodedTokens: patterns(false, 0),
}

// inPieces is the pattern that reads in pieces.
var inPieces = Pattern{Prefetch: true, Pieces: true}

// wholeRows is the pattern that reads whole rows.
var wholeRows = Pattern{Prefetch: true, Whole: true}

// patterns returns patterns for the given numbers of rows, each with and without prefetch, and
// with near prefetch if near is set.
func patterns(near bool, rows ...int) (list []Pattern) {
	for _, n := range rows {
		list = append(list, Pattern{Rows: n, Prefetch: true}, Pattern{Rows: n})
		if near {
			list = append(list, Pattern{Rows: n, Prefetch: true, Near: true})
		}
	}
	return list
}

// Candidates returns the patterns that the kernels of r implement.
func Candidates(r Role) []Pattern { return slices.Clone(candidates[r]) }

// Default returns the plan for processors that have not been measured. vendor is the vendor
// string of CPUID. On AMD, kernels for one token read 1 row at a time, which is fastest on Zen 4;
// those for pairs, Q8 and coded weights with float32 activations prefetch, and others do not.
// Several tokens are read in pieces, and packing reads whole rows. On other processors kernels
// read many rows and prefetch.
func Default(vendor string) Plan {
	var p Plan
	for r := range Roles {
		p[r] = candidates[r][0]
	}
	if vendor == "AuthenticAMD" {
		for _, r := range []Role{Floats, Pairs, Q8, Q4, Roof, CodedPairs, CodedFloats} {
			p[r] = Pattern{Rows: 1, Prefetch: r == Pairs || r == Q8 || r == CodedFloats}
		}
		p[PairTokens], p[Packing] = inPieces, wholeRows
	}
	return p
}

// Check returns an error if p has a pattern that its role's kernels do not implement.
func (p Plan) Check() error {
	for r, pattern := range p {
		if !slices.Contains(candidates[r], pattern) {
			return fmt.Errorf("fetch: %s: got the pattern %q, want one of %q", Role(r), pattern, candidates[r])
		}
	}
	return nil
}

var (
	mu    sync.Mutex
	inUse Plan
	rows  [Roles]atomic.Uint32
	// pieces holds whether each role reads in pieces.
	pieces [Roles]atomic.Bool
	// whole holds whether each role reads whole rows.
	whole [Roles]atomic.Bool
	// prefetch is read by the assembly: 0 means the usual distance, 1 no prefetch, 2 near. It is
	// written with mu held.
	prefetch [Roles]uint8
)

func init() { set(Default("")) }

// Use makes p the plan of this process for kernel calls from now on. It panics if p has a pattern
// that its role's kernels do not implement. It is safe for concurrent use.
func Use(p Plan) {
	if err := p.Check(); err != nil {
		panic(err)
	}
	set(p)
}

func set(p Plan) {
	mu.Lock()
	defer mu.Unlock()
	for r, pattern := range p {
		setRole(Role(r), pattern)
	}
}

// setRole sets the pattern of r. The caller holds mu.
func setRole(r Role, p Pattern) {
	inUse[r] = p
	rows[r].Store(uint32(p.Rows))
	pieces[r].Store(p.Pieces)
	whole[r].Store(p.Whole)
	switch {
	case p.Near:
		prefetch[r] = 2
	case p.Prefetch:
		prefetch[r] = 0
	default:
		prefetch[r] = 1
	}
}

// UseFor makes p the pattern of r alone and returns the previous one. It panics if the kernels of
// r do not implement p. It is safe for concurrent use.
func UseFor(r Role, p Pattern) Pattern {
	if !slices.Contains(candidates[r], p) {
		panic(fmt.Sprintf("fetch: %s has no pattern %q", r, p))
	}
	mu.Lock()
	defer mu.Unlock()
	before := inUse[r]
	setRole(r, p)
	return before
}

// Current returns the plan of this process.
func Current() Plan {
	mu.Lock()
	defer mu.Unlock()
	return inUse
}

// Rows returns the number of rows that the kernels of r read at a time.
func Rows(r Role) int { return int(rows[r].Load()) }

// InPieces reports whether the kernels of r read in pieces.
func InPieces(r Role) bool { return pieces[r].Load() }

// InWholeRows reports whether the kernels of r read whole rows.
func InWholeRows(r Role) bool { return whole[r].Load() }

// Forms holds the forms of a kernel for 8, 4 and 1 rows at a time. If a kernel lacks a form, that
// for the nearest number takes its place.
type Forms[K any] struct{ Eight, Four, One K }

// For returns the form that the plan selects for r. It does not allocate.
func (f *Forms[K]) For(r Role) K {
	switch Rows(r) {
	case 1:
		return f.One
	case 4:
		return f.Four
	}
	return f.Eight
}
