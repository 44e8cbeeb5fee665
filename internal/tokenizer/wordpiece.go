package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// wordPiece is BERT's model. From the left, it takes the longest token that the rest of the word
// begins with. A word with a part that no token begins is unknown as a whole.
type wordPiece struct {
	*vocab
	unk     string
	prefix  string // of tokens that do not begin a word
	maxRune int    // words with more characters are unknown
	widest  int    // bytes of the longest token
}

var errNoUnk = errors.New("tokenizer: the text has characters that are not in the vocabulary, and the file has no token for unknown characters")

func parseWordPiece(spec modelSpec) (model, error) {
	w := &wordPiece{unk: "[UNK]", prefix: "##", maxRune: 100}
	s := spec.scan("vocab")
	if s == nil {
		return nil, errNoVocab
	}
	var err error
	if w.vocab, err = parseVocab(s); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	for name, to := range map[string]*string{"unk_token": &w.unk, "continuing_subword_prefix": &w.prefix} {
		if spec.scan(name) == nil {
			continue
		}
		if *to, err = spec.str(name); err != nil {
			return nil, err
		}
	}
	if s := spec.scan("max_input_chars_per_word"); s != nil {
		text, err := s.number()
		if err == nil {
			w.maxRune, err = strconv.Atoi(text)
		}
		if err != nil {
			return nil, fmt.Errorf("model.max_input_chars_per_word: %w", err)
		}
	}
	for _, token := range w.all() {
		w.widest = max(w.widest, len(token))
	}
	return w, nil
}

func (w *wordPiece) appendIDs(dst []int32, word string, _ *bounds) ([]int32, error) {
	from := len(dst)
	known, err := w.each(word, func(id int32, _, _ int) { dst = append(dst, id) })
	if known || err != nil {
		return dst, err
	}
	id, err := w.unknown()
	return append(dst[:from], id), err
}

// longest implements model: a word of any length may be one unknown token.
func (w *wordPiece) longest() int { return 0 }

// least implements model, as longest.
func (w *wordPiece) least(string) int { return 0 }

// covers implements model, as longest.
func (w *wordPiece) covers(rune) int { return 0 }

func (w *wordPiece) appendTokens(dst []token, word string) ([]token, error) {
	from := len(dst)
	known, err := w.each(word, func(id int32, start, end int) {
		dst = append(dst, token{id: id, start: start, end: end})
	})
	if known || err != nil {
		return dst, err
	}
	id, err := w.unknown()
	return append(dst[:from], token{id: id, end: len(word)}), err
}

// each calls found for each token of word. known is false if the word is unknown as a whole.
func (w *wordPiece) each(word string, found func(id int32, start, end int)) (known bool, err error) {
	if utf8.RuneCountInString(word) > w.maxRune {
		return false, nil
	}
	steps := allowance(len(word))
	for start := 0; start < len(word); {
		id, end := w.longestAt(word, start, &steps)
		if steps < 0 {
			return false, ErrTooSlow
		}
		if id < 0 {
			return false, nil
		}
		found(id, start, end)
		start = end
	}
	return true, nil
}

// longestAt returns the longest token at start, with id -1 if there is none. It subtracts its work
// from steps and stops below zero.
func (w *wordPiece) longestAt(word string, start int, steps *int) (id int32, end int) {
	var buf [128]byte
	key := buf[:0]
	if start > 0 {
		key = append(key, w.prefix...)
	}
	lead := len(key)
	end = min(len(word), start+max(0, w.widest-lead))
	for end < len(word) && !utf8.RuneStart(word[end]) {
		end--
	}
	key = append(key, word[start:end]...)
	for end > start {
		if *steps -= 1 + (lead+end-start)>>4; *steps < 0 {
			break
		}
		if id := w.bytesID(key[:lead+end-start]); id >= 0 {
			return id, end
		}
		_, n := utf8.DecodeLastRuneInString(word[start:end])
		end -= n
	}
	return -1, start
}

// unknown returns the id of unknown words.
func (w *wordPiece) unknown() (int32, error) {
	id := w.id(w.unk)
	if id < 0 {
		return id, errNoUnk
	}
	return id, nil
}

// wordLevel is a vocabulary of whole words.
type wordLevel struct {
	*vocab
	unk string
}

func parseWordLevel(spec modelSpec) (model, error) {
	s := spec.scan("vocab")
	if s == nil {
		return nil, errNoVocab
	}
	v, err := parseVocab(s)
	if err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	unk, err := spec.str("unk_token")
	return &wordLevel{v, unk}, err
}

func (w *wordLevel) appendIDs(dst []int32, word string, _ *bounds) ([]int32, error) {
	id := w.id(word)
	if id < 0 {
		if id = w.id(w.unk); id < 0 {
			return dst, errNoUnk
		}
	}
	return append(dst, id), nil
}

// longest implements model: a word is one token.
func (w *wordLevel) longest() int { return 0 }

// least implements model.
func (w *wordLevel) least(string) int { return 1 }

// covers implements model, as longest.
func (w *wordLevel) covers(rune) int { return 0 }

func (w *wordLevel) appendTokens(dst []token, word string) ([]token, error) {
	ids, err := w.appendIDs(nil, word, nil)
	if err != nil {
		return dst, err
	}
	return append(dst, token{id: ids[0], end: len(word)}), nil
}

// bertNormalizer cleans text as BERT's tokenizer does.
type bertNormalizer struct {
	clean, chinese, strip, lower bool
}

func (b bertNormalizer) normalize(p piece) (piece, error) {
	if b.clean {
		p = filter(p, func(r rune) bool { return !isDropped(r) })
		p = mapRunes(p, func(r rune) rune {
			if unicode.IsSpace(r) {
				return ' '
			}
			return r
		})
	}
	if b.chinese && strings.ContainsFunc(p.s, isChinese) {
		w := rewrite(p)
		for _, r := range p.s {
			if isChinese(r) {
				w.put(' ', 0)
				w.put(r, 1)
				w.put(' ', 1)
			} else {
				w.put(r, 0)
			}
		}
		p = w.piece()
	}
	if b.strip {
		p = stripNonSpacing(p)
	}
	if b.lower {
		p = lowercase(p)
	}
	return p, nil
}

// isChinese reports whether BERT treats r as Chinese: a character of the blocks of CJK ideographs,
// one of which BERT misreads.
func isChinese(r rune) bool {
	return r >= 0x3400 && (r <= 0x4dbf || r >= 0x4e00 && r <= 0x9fff || r >= 0xf900 && r <= 0xfaff ||
		r >= 0x20000 && r <= 0x2a6df || r >= 0x2a700 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf ||
		r >= 0x2f800 && r <= 0x2fa1f)
}
