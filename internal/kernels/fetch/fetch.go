// Package fetch says how kernels read weights from memory: how many rows at once,
// whether they prefetch by software, and how far ahead.
//
// A [Pattern] is one way to read, a [Role] is a group of kernels that read alike, and a
// [Plan] has one pattern for each role. The pattern changes how fast a kernel runs and not
// one bit of its results, so a plan may change at any time, also while kernels run. The fastest
// pattern depends on the processor: 8 rows with prefetch on Intel's Sapphire Rapids, 1 row
// without on AMD's Zen 4. Package tune measures which one it is.
//
// The process has one plan, because all threads share one memory. Kernels read it at each call:
// those in Go by [Rows], generated assembly by the flags in this package.
package fetch

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// A Role is a group of kernels that read memory alike.
type Role uint8

// The roles. The generator of the assembly knows their order.
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

// String returns the name of r in files and in JSON.
func (r Role) String() string {
	if r >= Roles {
		return fmt.Sprintf("Role(%d)", uint8(r))
	}
	return roleNames[r]
}

// A Pattern is one way to read weights.
type Pattern struct {
	// Rows is how many rows, or packed blocks of rows, are read at once: 8, 4 or 1. It is 0 for roles
	// whose kernels have one number of rows only.
	Rows int `json:"rows,omitempty"`
	// Prefetch says that each cache line is prefetched by software before it is used: about 1 KiB
	// ahead, of interleaved q8_0 and q4_0 some 4 KiB, of single rows for pairs 2 KiB and of single coded rows
	// 6 KiB into the second-level cache.
	Prefetch bool `json:"prefetch"`
	// Near says that the distance is a quarter of that.
	Near bool `json:"near,omitempty"`
	// Pieces says that a dozen rows are read in pieces of 1 KiB, so that the tokens' part stays in the
	// first-level cache, instead of each row from its first byte to its last.
	Pieces bool `json:"pieces,omitempty"`
	// Whole says that rows are packed from the first byte to the last, in the order of memory, and prefetched 8 KiB
	// ahead into the second-level cache, instead of in pieces of 1 KiB of 16 rows.
	Whole bool `json:"whole,omitempty"`
}

// String returns text such as "8 rows, prefetch".
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

// candidates are the patterns that the kernels of each role have, the default for Intel first.
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

// inPieces is the pattern of pieces.
var inPieces = Pattern{Prefetch: true, Pieces: true}

// wholeRows is the pattern of whole rows.
var wholeRows = Pattern{Prefetch: true, Whole: true}

// patterns are those with so many rows, each with and without prefetch, and near where kernels have
// that.
func patterns(near bool, rows ...int) (list []Pattern) {
	for _, n := range rows {
		list = append(list, Pattern{Rows: n, Prefetch: true}, Pattern{Rows: n})
		if near {
			list = append(list, Pattern{Rows: n, Prefetch: true, Near: true})
		}
	}
	return list
}

// Candidates returns the patterns that the kernels of r have.
func Candidates(r Role) []Pattern { return slices.Clone(candidates[r]) }

// Default returns the plan for unmeasured processors of a vendor, named as CPUID names it: 1 row for one
// token on AMD, as Zen 4 reads fastest, with prefetch of pairs, Q8 and coded weights of float32 activations and without of others, pieces for several
// tokens, and whole rows for packing; many rows with prefetch elsewhere.
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

// Check returns an error if a role's kernels lack the pattern of p.
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
	// pieces are the roles that read in pieces.
	pieces [Roles]atomic.Bool
	// whole are the roles that read whole rows.
	whole [Roles]atomic.Bool
	// prefetch is read by the assembly: 0 is the usual distance, 1 no prefetch, 2 near. It is
	// written under mu.
	prefetch [Roles]uint8
)

func init() { set(Default("")) }

// Use makes p the plan of this process, for kernel calls from now on. It panics if p has a pattern
// that kernels lack. It may be called at any time by any goroutine.
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

// setRole is called with mu held.
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

// UseFor makes p the pattern of r alone and returns the one before. It panics if the kernels of r
// lack p. It may be called at any time by any goroutine.
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

// Rows returns how many rows the kernels of r read at once.
func Rows(r Role) int { return int(rows[r].Load()) }

// InPieces reports whether the kernels of r read in pieces.
func InPieces(r Role) bool { return pieces[r].Load() }

// InWholeRows reports whether the kernels of r read whole rows.
func InWholeRows(r Role) bool { return whole[r].Load() }

// Forms are the forms of a kernel for 8, 4 and 1 rows at once. If a kernel lacks a form, the form
// for the nearest number is in its place.
type Forms[K any] struct{ Eight, Four, One K }

// For returns the form that the plan has for r. It allocates nothing.
func (f *Forms[K]) For(r Role) K {
	switch Rows(r) {
	case 1:
		return f.One
	case 4:
		return f.Four
	}
	return f.Eight
}
