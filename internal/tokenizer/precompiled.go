package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// precompiled is SentencePiece's compiled character map: a double-array trie whose
// values are places in a list of NUL-terminated replacements.
type precompiled struct {
	trie []uint32
	text []byte
}

func parsePrecompiled(encoded, path string) (*precompiled, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%s.precompiled_charsmap: %w", path, err)
	}
	if len(data) < 4 {
		return nil, fmt.Errorf("%s.precompiled_charsmap: %d bytes are too few", path, len(data))
	}
	size := int(binary.LittleEndian.Uint32(data))
	data = data[4:]
	if size > len(data) || size%4 != 0 || size == 0 {
		return nil, fmt.Errorf("%s.precompiled_charsmap: a trie of %d bytes in %d", path, size, len(data))
	}
	p := &precompiled{make([]uint32, size/4), data[size:]}
	for i := range p.trie {
		p.trie[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	if !utf8.Valid(p.text) {
		return nil, errors.New(path + ".precompiled_charsmap: the replacements are not UTF-8")
	}
	return p, nil
}

// transform returns the replacement for the shortest prefix of s that has one.
func (p *precompiled) transform(s string) (string, bool) {
	node := uint32(0)
	node ^= jump(p.trie[0])
	for i := range len(s) {
		c := uint32(s[i])
		node ^= c
		if c == 0 || int(node) >= len(p.trie) {
			return "", false
		}
		unit := p.trie[node]
		if unit&(1<<31|0xff) != c {
			return "", false
		}
		node ^= jump(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if int(node) >= len(p.trie) {
			return "", false
		}
		at := int(p.trie[node] & (1<<31 - 1))
		if at > len(p.text) {
			return "", false
		}
		to, _, _ := bytes.Cut(p.text[at:], []byte{0})
		return string(to), utf8.Valid(to)
	}
	return "", false
}

// jump returns the offset that a unit of the trie holds.
func jump(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// maxCluster is the length from which grapheme clusters are processed character by character.
const maxCluster = 6

func (p *precompiled) normalize(in piece) (piece, error) {
	w := substituter{w: rewrite(in)}
	for at := 0; at < len(in.s); {
		if err := in.bounds.step(); err != nil {
			return in, err
		}
		n := clusterLen(in.s[at:])
		cluster := in.s[at : at+n]
		at += n
		if n < maxCluster {
			if to, ok := p.transform(cluster); ok {
				w.substitute(cluster, to)
				continue
			}
		}
		for _, r := range cluster {
			if to, ok := p.transform(string(r)); ok {
				w.substitute(string(r), to)
			} else {
				w.put(mark{r: r})
			}
		}
	}
	if !w.modified {
		return in, nil
	}
	return w.piece(), nil
}

// substituter writes characters and substitutes of others. It holds the last one back, as it
// may yet stand for a removal.
type substituter struct {
	w        *rewriter
	last     mark
	held     bool // last is there
	modified bool // something was substituted
}

func (s *substituter) put(m mark) {
	if s.held {
		s.w.put(s.last.r, s.last.change)
	}
	s.last, s.held = m, true
}

// substitute writes to in the place of old, aligned character by character: what
// is too much is inserted, and the last character, be it one from before, stands
// for what is too little. (The reference does so; a removal at the very start of a
// text therefore shifts what follows.)
func (s *substituter) substitute(old, to string) {
	s.modified = true
	before := utf8.RuneCountInString(old) // that nothing stands for yet
	for _, r := range to {
		m := mark{r: r}
		if before--; before < 0 {
			m.change = 1
		}
		s.put(m)
	}
	if before > 0 && s.held {
		s.last.change -= before
	}
}

func (s *substituter) piece() piece {
	if s.held {
		s.w.put(s.last.r, s.last.change)
	}
	return s.w.piece()
}

// clusterLen returns the length of the grapheme cluster that begins s, as far as it
// matters for clusters below maxCluster bytes: sequences of pictographs and of
// Indic consonants, which are longer, may come out in parts.
func clusterLen(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	if n < len(s) && r < utf8.RuneSelf && s[n] < utf8.RuneSelf && r != '\r' {
		return n
	}
	flags := 0
	for n < len(s) {
		next, k := utf8.DecodeRuneInString(s[n:])
		if breaks(r, next) {
			break
		}
		if isFlag(r) && isFlag(next) {
			if flags++; flags%2 == 0 {
				break
			}
		}
		r, n = next, n+k
	}
	return n
}

// breaks reports whether a cluster ends between two characters.
func breaks(a, b rune) bool {
	switch {
	case a == '\r' && b == '\n':
		return false
	case isBreakControl(a) || isBreakControl(b):
		return true
	case isExtend(b) || unicode.Is(unicode.Mc, b) || b == 0x0e33 || b == 0x0eb3:
		return false
	case unicode.Is(unicode.Prepended_Concatenation_Mark, a):
		return false
	case isFlag(a) && isFlag(b):
		return false
	}
	return !hangulJoins(a, b)
}

// isExtend is Grapheme_Extend, the emoji modifiers and the zero width joiner.
func isExtend(r rune) bool {
	return r >= 0x300 && (unicode.In(r, unicode.Mn, unicode.Me, unicode.Other_Grapheme_Extend) ||
		r == 0x200d || r >= 0x1f3fb && r <= 0x1f3ff)
}

// isBreakControl is the class of controls that stand alone.
func isBreakControl(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && r != 0x200c && r != 0x200d &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r) && !(r >= 0xe0020 && r <= 0xe007f)
}

func isFlag(r rune) bool { return r >= 0x1f1e6 && r <= 0x1f1ff }

// hangulJoins reports whether jamo or syllables a and b form one cluster.
func hangulJoins(a, b rune) bool {
	lead := a >= 0x1100 && a <= 0x115f || a >= 0xa960 && a <= 0xa97c
	syllable := func(r rune) bool { return r >= hangulBase && r < hangulEnd }
	vowel := func(r rune) bool { return r >= 0x1160 && r <= 0x11a7 || r >= 0xd7b0 && r <= 0xd7c6 }
	tail := func(r rune) bool { return r >= 0x11a8 && r <= 0x11ff || r >= 0xd7cb && r <= 0xd7fb }
	open := syllable(a) && (a-hangulBase)%jamoN == 0
	switch {
	case lead:
		return b >= 0x1100 && b <= 0x115f || b >= 0xa960 && b <= 0xa97c || vowel(b) || syllable(b)
	case vowel(a) || open:
		return vowel(b) || tail(b)
	case syllable(a) || tail(a):
		return tail(b)
	}
	return false
}
