package tokenizer

import (
	"fmt"
	"strings"
)

// parseBPE builds the model. early has the vocabulary and the merges if they were read in place; nil if not.
func parseBPE(spec modelSpec, early *earlyBPE) (model, error) {
	b := &bpe{unk: -1, cache: newWordCache()}
	var err error
	if early != nil {
		b.vocab = early.vocab
	} else {
		s := spec.scan("vocab")
		if s == nil {
			return nil, errNoVocab
		}
		if b.vocab, err = parseVocab(s); err != nil {
			return nil, fmt.Errorf("model.vocab: %w", err)
		}
	}
	for name, to := range map[string]*string{"continuing_subword_prefix": &b.prefix, "end_of_word_suffix": &b.suffix} {
		if *to, err = spec.str(name); err != nil {
			return nil, err
		}
	}
	for name, to := range map[string]*bool{"fuse_unk": &b.fuseUnk, "ignore_merges": &b.ignoreMerges, "byte_fallback": &b.byteFallback} {
		if *to, err = spec.flag(name); err != nil {
			return nil, err
		}
	}
	unk, err := spec.str("unk_token")
	if err != nil {
		return nil, err
	}
	if unk != "" {
		if b.unk, err = b.mustHave(unk); err != nil {
			return nil, fmt.Errorf("model.unk_token: %w", err)
		}
	}
	if early != nil {
		if b.prefix != early.prefix {
			return nil, errLate
		}
		b.setMerges(early.merges)
		return b, nil
	}
	if err := b.parseMerges(spec.scan("merges")); err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	return b, nil
}

// setMerges enters the merges, best first, and what follows from them and from the vocabulary.
func (b *bpe) setMerges(list []merge) {
	for _, token := range b.all() {
		b.widest = max(b.widest, len(token))
	}
	for i := range b.fallback {
		b.fallback[i] = b.id(fmt.Sprintf("<0x%02X>", i))
		b.byteIDs[i] = b.id(string(byteToRune(byte(i))))
	}
	crosses := false // some merge makes a token with a separator behind another character
	b.merges = newPairTable(len(list))
	for i, m := range list {
		if i%group == 0 {
			b.merges.load(list[i:min(i+group, len(list))])
		}
		b.merges.set(m.left, m.right, int32(i), m.fused)
		if b.byteFallback && !crosses && (i == 0 || m.fused != list[i-1].fused) {
			crosses = crossesSeparator(b.name(m.fused))
		}
	}
	if b.byteFallback && !crosses && b.id(spmSpace) >= 0 && b.prefix == "" && b.suffix == "" && b.coversAll() {
		b.separator = spmSpace
	}
}

// parseMerges reads the merges: ["a", "b"] or, in older files, "a b".
func (b *bpe) parseMerges(s *scanner) error {
	if s == nil {
		b.setMerges(nil)
		return nil
	}
	list, err := b.mergeList(s, len(s.Text), nil)
	if err == nil {
		b.setMerges(list)
	}
	return err
}

// mergeList reads an array of merges from about size bytes of text. read, if it is not nil, is called with the
// offset behind what has been read.
func (b *bpe) mergeList(s *scanner, size int, read func(to int)) ([]merge, error) {
	r := newMergeReader(b, size/40, func(w writtenMerge, err error) error {
		return fmt.Errorf("[%d]: %w", w.number, &syntaxError{w.place, err.Error()})
	})
	err := s.Array("", func(i int) error {
		if read != nil && i%(1<<12) == 0 {
			read(s.Pos)
		}
		var split int
		var err error
		if r.text, split, err = readMerge(s, r.text); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		return r.add(split, i, s.Base+s.Pos)
	})
	if first := r.find(); first != nil { // of a merge before the one that err is about
		err = first
	}
	return r.list, err
}

// readMerge appends the two parts of a merge to dst. split is the offset of the second part.
func readMerge(s *scanner, dst []byte) (both []byte, split int, err error) {
	if s.Peek() == '"' {
		text, err := s.String()
		if err != nil {
			return dst, 0, err
		}
		left, right, ok := strings.Cut(string(text), " ")
		if !ok {
			return dst, 0, s.fail("no space in the merge %q", text)
		}
		return append(append(dst, left...), right...), len(dst) + len(left), nil
	}
	start := s.Pos
	if both, split, ok := readPair(s, dst); ok {
		return both, split, nil
	}
	s.Pos = start
	return explainPair(s, dst)
}

// readPair reads an array of two strings. ok is false for anything else.
func readPair(s *scanner, dst []byte) (both []byte, split int, ok bool) {
	for _, delimiter := range []byte("[,") {
		if s.Peek() != delimiter {
			return dst, 0, false
		}
		s.Pos++
		part, err := s.String()
		if err != nil {
			return dst, 0, false
		}
		split = len(dst)
		dst = append(dst, part...)
	}
	if s.Peek() != ']' {
		return dst, 0, false
	}
	s.Pos++
	return dst, split, true
}

// explainPair is readPair for arrays with another number of parts. Its closure takes memory for each call.
func explainPair(s *scanner, dst []byte) (both []byte, split int, err error) {
	count := 0
	err = s.Array("", func(i int) error {
		part, err := s.String()
		if i == 1 {
			split = len(dst)
		}
		dst, count = append(dst, part...), i+1
		return err
	})
	if err == nil && count != 2 {
		err = s.fail("a merge has %d parts, not two", count)
	}
	return dst, split, err
}

// spmSpace is SentencePiece's visible space.
const spmSpace = "\u2581"

// crossesSeparator reports whether token has a separator after another character.
func crossesSeparator(token string) bool {
	for strings.HasPrefix(token, spmSpace) {
		token = token[len(spmSpace):]
	}
	return strings.Contains(token, spmSpace)
}

// coversAll reports whether every character becomes a token.
func (b *bpe) coversAll() bool {
	for _, id := range b.fallback {
		if id < 0 {
			return b.unk >= 0
		}
	}
	return true
}

// useRawBytes makes the model take words of raw bytes instead of byte-level characters, if its
// vocabulary allows it.
func (b *bpe) useRawBytes() bool {
	if b.prefix != "" || b.suffix != "" {
		return false
	}
	for _, id := range b.byteIDs {
		if id < 0 {
			return false
		}
	}
	b.raw, b.separator = true, ""
	return true
}
