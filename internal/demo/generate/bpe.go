package main

import "strings"

// A vocabulary is a byte-level BPE: tokens by id, and the merges that make them.
type vocabulary struct {
	tokens []string
	merges [][2]string
}

// byteNames returns GPT-2's reversible map from bytes to printable characters.
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

// learn makes a vocabulary of size tokens, which starts with the special tokens and the bytes. It
// merges the commonest pair of neighbours in the words of text until the vocabulary is full. Of
// equally common pairs it takes the one that sorts first, so that the result is reproducible.
// Digits stay apart, which makes sums easier to learn.
func learn(text string, specials []string, size int) vocabulary {
	names := byteNames()
	v := vocabulary{tokens: append([]string(nil), specials...)}
	v.tokens = append(v.tokens, names[:]...)
	counts := map[string]int{}
	for _, w := range strings.Fields(text) {
		counts["\x20"+w]++
		counts[w]++
	}
	var words []word
	for w, n := range counts {
		var parts []string
		for i := range len(w) {
			parts = append(parts, names[w[i]])
		}
		words = append(words, word{parts, n})
	}
	pairs := map[[2]string]int{}
	for _, w := range words {
		w.count(pairs, 1)
	}
	for len(v.tokens) < size {
		best, ok := commonest(pairs)
		if !ok {
			break
		}
		v.merges = append(v.merges, best)
		v.tokens = append(v.tokens, best[0]+best[1])
		for i, w := range words {
			if parts := merge(w.parts, best); len(parts) < len(w.parts) {
				w.count(pairs, -1)
				words[i].parts = parts
				words[i].count(pairs, 1)
			}
		}
	}
	return v
}

// A word has its tokens and the number of times it occurs.
type word struct {
	parts []string
	n     int
}

// count adds the word's pairs of neighbours to pairs, sign times.
func (w word) count(pairs map[[2]string]int, sign int) {
	for i := range len(w.parts) - 1 {
		if !strings.ContainsAny(w.parts[i]+w.parts[i+1], "0123456789") {
			pairs[[2]string{w.parts[i], w.parts[i+1]}] += sign * w.n
		}
	}
}

func commonest(pairs map[[2]string]int) (best [2]string, ok bool) {
	most := 0
	for p, n := range pairs {
		if n > most || n == most && n > 0 && (p[0] < best[0] || p[0] == best[0] && p[1] < best[1]) {
			best, most = p, n
		}
	}
	return best, most > 0
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
