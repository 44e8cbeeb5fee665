package main

import (
	"sort"
	"strings"
)

// A vocabulary is a byte-level BPE: tokens by id and the merges that make them.
type vocabulary struct {
	tokens []string
	merges [][2]string
}

// byteNames is GPT-2's reversible map from bytes to printable characters.
func byteNames() [256]string {
	var names [256]string
	next := rune(256)
	for b := range 256 {
		printable := b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE
		if printable {
			names[b] = string(rune(b))
		} else {
			names[b] = string(next)
			next++
		}
	}
	return names
}

// learn makes a vocabulary of size tokens that starts with the specials and the bytes:
// the commonest pair of neighbours in the words of text is merged until it is full. Ties
// go to the pair that sorts first, so that the result is reproducible.
func learn(text string, specials []string, size int) vocabulary {
	names := byteNames()
	v := vocabulary{tokens: append([]string(nil), specials...)}
	v.tokens = append(v.tokens, names[:]...)
	counts := map[string]int{}
	for _, w := range strings.Fields(text) {
		counts["\x20"+w]++
		counts[w]++
	}
	type word struct {
		parts []string
		n     int
	}
	var words []word
	for w, n := range counts {
		var parts []string
		for i := range len(w) {
			parts = append(parts, names[w[i]])
		}
		words = append(words, word{parts, n})
	}
	for len(v.tokens) < size {
		pairs := map[[2]string]int{}
		for _, w := range words {
			for i := range len(w.parts) - 1 {
				pairs[[2]string{w.parts[i], w.parts[i+1]}] += w.n
			}
		}
		best, ok := commonest(pairs)
		if !ok {
			break
		}
		v.merges = append(v.merges, best)
		v.tokens = append(v.tokens, best[0]+best[1])
		for i := range words {
			words[i].parts = merge(words[i].parts, best)
		}
	}
	return v
}

func commonest(pairs map[[2]string]int) (best [2]string, ok bool) {
	keys := make([][2]string, 0, len(pairs))
	for p := range pairs {
		keys = append(keys, p)
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := keys[i], keys[j]
		if pairs[a] != pairs[b] {
			return pairs[a] > pairs[b]
		}
		return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
	})
	if len(keys) == 0 {
		return best, false
	}
	return keys[0], true
}

func merge(parts []string, pair [2]string) []string {
	var out []string
	for i := 0; i < len(parts); i++ {
		if i+1 < len(parts) && parts[i] == pair[0] && parts[i+1] == pair[1] {
			out = append(out, pair[0]+pair[1])
			i++
			continue
		}
		out = append(out, parts[i])
	}
	return out
}
