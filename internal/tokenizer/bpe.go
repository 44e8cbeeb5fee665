package tokenizer

import (
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// bpe is the byte-pair encoding model. It cuts a word into characters, or into bytes for byte-level
// vocabularies, and merges neighbours in the order of the list of merges until no merge is left.
// Dropout is for training and ignored.
type bpe struct {
	*vocab
	merges *pairTable
	cache  *wordCache

	prefix, suffix string // continuing_subword_prefix, end_of_word_suffix
	unk            int32  // -1: characters that are not known vanish
	fuseUnk        bool
	ignoreMerges   bool
	byteFallback   bool
	fallback       [256]int32 // ids of <0x00> to <0xFF>, -1 where missing

	widest  int        // bytes of the longest token's name
	raw     bool       // words are raw bytes, one symbol each
	byteIDs [256]int32 // ids of the byte-level characters, -1 where missing

	// separator begins words that no merge crosses from the left: "▁" in most SentencePiece
	// vocabularies. It is "" if there is none.
	separator string

	reached sync.Once // fills reach
	reach   reach
}

// whole looks up the word in the vocabulary, for files in which that comes before merging.
func (b *bpe) whole(word string) int32 {
	if !b.ignoreMerges || len(word) > b.widest {
		return -1
	}
	if b.raw {
		var buf [128]byte
		return b.bytesID(appendByteChars(buf[:0], word))
	}
	return b.id(word)
}

// longest implements model. A token's name is at least as long as its text.
func (b *bpe) longest() int {
	n := 0
	switch {
	case b.raw:
		for _, token := range b.all() {
			n = max(n, spelledBytes(token))
		}
		return n
	case b.byteFallback && !slices.Contains(b.fallback[:], -1):
	case b.unk >= 0 && !b.fuseUnk:
		n = utf8.UTFMax
	default:
		return 0
	}
	return max(n, b.widest)
}

// covers implements model, as that of unigram.
func (b *bpe) covers(c rune) int {
	if b.raw {
		return b.widest // every byte has a token, and names are longer than what they stand for
	}
	unk, _ := b.token(b.unk)
	if b.prefix != "" || b.suffix != "" || b.id(string(c)) < 0 || strings.ContainsRune(unk, c) {
		return 0
	}
	return b.widest
}

// least implements model: where not every byte has a token, unknown characters vanish or
// become one in any number.
func (b *bpe) least(word string) int {
	if !b.raw && (!b.byteFallback || slices.Contains(b.fallback[:], -1)) {
		return 0
	}
	b.reached.Do(func() {
		for _, token := range b.all() {
			spelt := []byte(token)
			if b.raw {
				spelt = appendTokenBytes(nil, token)
			}
			b.reach.add(spelt)
		}
	})
	return b.reach.least(word)
}

func (b *bpe) appendIDs(dst []int32, word string, limits *bounds) ([]int32, error) {
	if b.separator == "" {
		return b.appendCached(dst, word, limits)
	}
	if id := b.whole(word); id >= 0 {
		return append(dst, id), nil
	}
	for word != "" {
		n := b.nextWord(word)
		var err error
		if dst, err = b.appendCached(dst, word[:n], limits); err != nil {
			return dst, err
		}
		word = word[n:]
	}
	return dst, nil
}

// nextWord returns the length of the first part of text that merges cannot cross: separators, and
// then everything up to the next separator.
func (b *bpe) nextWord(text string) int {
	n := 0
	for strings.HasPrefix(text[n:], b.separator) {
		n += len(b.separator)
	}
	if i := strings.Index(text[n:], b.separator); i >= 0 {
		return n + i
	}
	return len(text)
}

func (b *bpe) appendCached(dst []int32, word string, limits *bounds) ([]int32, error) {
	if len(word) > cacheMaxWord {
		if err := limits.check(b, len(dst), word); err != nil {
			return dst, err
		}
		return b.appendMerged(dst, word, limits)
	}
	slot := b.cache.slot(word)
	if hit := slot.Load(); hit != nil && hit.word == word {
		return append(dst, hit.ids...), limits.step()
	}
	from := len(dst)
	dst, err := b.appendMerged(dst, word, limits)
	if err == nil {
		b.cache.put(slot, word, dst[from:])
	}
	return dst, err
}

func (b *bpe) appendMerged(dst []int32, word string, limits *bounds) ([]int32, error) {
	if b.separator == "" {
		if id := b.whole(word); id >= 0 {
			return append(dst, id), nil
		}
	}
	if len(word) > math.MaxInt32/4 {
		return dst, ErrTooLong
	}
	w := workWords.Get().(*workWord)
	defer w.release()
	if err := b.symbols(w, word, limits); err != nil {
		return dst, err
	}
	if err := w.merge(b.merges, limits); err != nil {
		return dst, err
	}
	if len(w.syms) > longWord {
		count := 0
		for i := w.first(); i >= 0; i = w.syms[i].next {
			count++
		}
		dst = slices.Grow(dst, count)
	}
	for i := w.first(); i >= 0; i = w.syms[i].next {
		dst = append(dst, w.syms[i].id)
	}
	return dst, nil
}

func (b *bpe) appendTokens(dst []token, word string) ([]token, error) {
	if id := b.whole(word); id >= 0 {
		return append(dst, token{id: id, end: len(word)}), nil
	}
	w := workWords.Get().(*workWord)
	defer w.release()
	for from := 0; from < len(word); {
		n := len(word) - from
		if b.separator != "" {
			n = b.nextWord(word[from:])
		}
		if err := b.symbols(w, word[from:from+n], nil); err != nil {
			return dst, err
		}
		_ = w.merge(b.merges, nil) // without bounds there is no error
		at := from
		for i := w.first(); i >= 0; i = w.syms[i].next {
			end := at + int(w.syms[i].size)
			dst = append(dst, token{id: w.syms[i].id, start: at, end: end})
			at = end
		}
		from += n
	}
	return dst, nil
}

// symbols cuts word into the symbols that merging starts with. It fails with ErrTooLong, or if
// limits refuse the memory.
func (b *bpe) symbols(w *workWord, word string, limits *bounds) error {
	w.syms = w.syms[:0]
	if len(word) > longWord { // memory for as many as there are, not for twice as many
		w.counting, w.count = true, 0
		b.cut(w, word)
		w.counting = false
		if w.count > growBase+growPerByte*len(word) {
			return ErrTooLong
		}
		if err := limits.memory(w.count * symbolBytes); err != nil {
			return err
		}
		w.syms = slices.Grow(w.syms, w.count)
	}
	b.cut(w, word)
	return nil
}

// cut adds the symbols of word to w.
func (b *bpe) cut(w *workWord, word string) {
	if w.counting && b.raw {
		w.count = len(word)
		return
	}
	if b.raw {
		for i := range len(word) {
			w.add(b.byteIDs[word[i]], 1)
		}
		return
	}
	unk := int32(0) // bytes of unknown characters that wait to become one token
	for i, r := range word {
		n := utf8.RuneLen(r)
		s := word[i : i+n]
		if i > 0 && b.prefix != "" {
			s = b.prefix + s
		}
		if i+n == len(word) {
			s += b.suffix
		}
		if id := b.id(s); id >= 0 {
			if unk > 0 {
				w.add(b.unk, unk)
				unk = 0
			}
			w.add(id, int32(n))
			continue
		}
		if b.byteFallback && b.addBytes(w, s) {
			continue
		}
		if b.unk < 0 {
			continue
		}
		if unk > 0 && !b.fuseUnk {
			w.add(b.unk, unk)
			unk = 0
		}
		unk += int32(n)
	}
	if unk > 0 {
		w.add(b.unk, unk)
	}
}

// addBytes adds the byte tokens for s if all of them exist.
func (b *bpe) addBytes(w *workWord, s string) bool {
	for i := range len(s) {
		if b.fallback[s[i]] < 0 {
			return false
		}
	}
	for i := range len(s) {
		w.add(b.fallback[s[i]], 1)
	}
	return true
}
