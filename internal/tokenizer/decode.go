package tokenizer

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder converts the names of tokens to text. The strings that it returns are joined. It may
// change tokens in place. It takes its work from budget, and leaves tokens unchanged when nothing
// is left.
type decoder interface {
	decode(tokens []string, budget *decodeBudget) []string
	// tokenBytes returns the bytes of one token inside a text. ok is false if they depend on its
	// neighbours.
	tokenBytes(token string, budget *decodeBudget) (b []byte, ok bool)
}

// decodeBudget bounds the work of all decoders of a file on some tokens. Only hostile files exhaust
// it: with decoders that lengthen a text repeatedly, patterns that backtrack without end, or
// thousands of decoders.
type decodeBudget struct {
	steps int // see stepsPerByte
	room  int // bytes by which replacements may lengthen the text
}

// The steps that any text may take, and those for each byte of its tokens beside
// stepsPerByte. A stream decodes a token or two at a time.
const (
	decodeSteps = 1 << 14
	decodeRoom  = 1 << 12
	roomPerByte = 16
)

func newDecodeBudget(bytes int) *decodeBudget {
	return &decodeBudget{steps: decodeSteps + stepsPerByte*bytes, room: decodeRoom + roomPerByte*bytes}
}

// spend subtracts the work of one decoder on tokens, and reports whether it may run.
func (b *decodeBudget) spend(tokens []string) bool {
	n := 0
	for _, t := range tokens {
		n += len(t)
	}
	b.steps -= len(tokens) + n>>4
	return b.steps >= 0
}

// used reports whether there was less than what was needed.
func (b *decodeBudget) used() bool { return b.steps <= 0 || b.room <= 0 }

// Decode turns ids into text. Ids that are not in the vocabulary are left out; with
// skipSpecial so are special tokens. Bytes that do not form characters become
// U+FFFD as the file's decoder has it.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	known := make([]int32, 0, len(ids))
	for _, id := range ids {
		if t.shown(id, skipSpecial) {
			known = append(known, id)
		}
	}
	return string(t.appendText(make([]byte, 0, 4*len(ids)), known))
}

// appendText appends the text of ids, all of which are shown.
func (t *Tokenizer) appendText(dst []byte, ids []int32) []byte {
	if t.fast() != nil {
		return t.fast().appendText(dst, ids)
	}
	tokens, bytes := make([]string, 0, len(ids)), 0
	for _, id := range ids {
		token, _ := t.Token(id)
		tokens, bytes = append(tokens, token), bytes+len(token)
	}
	if t.dec == nil {
		return append(dst, strings.Join(tokens, " ")...)
	}
	for _, text := range t.dec.decode(tokens, newDecodeBudget(bytes)) {
		dst = append(dst, text...)
	}
	return dst
}

// shown reports whether id takes part in decoding.
func (t *Tokenizer) shown(id int32, skipSpecial bool) bool {
	if k, ok := t.added.byID[id]; ok {
		return !skipSpecial || !t.added.skipped[k]
	}
	_, ok := t.model.token(id)
	return ok
}

// decoders applies each in turn.
type decoders []decoder

func (list decoders) decode(tokens []string, budget *decodeBudget) []string {
	for _, d := range list {
		if !budget.spend(tokens) {
			break
		}
		tokens = d.decode(tokens, budget)
	}
	return tokens
}

func (list decoders) tokenBytes(token string, budget *decodeBudget) ([]byte, bool) {
	b := []byte(token)
	for _, d := range list {
		if !budget.spend([]string{string(b)}) {
			break
		}
		var ok bool
		if b, ok = d.tokenBytes(string(b), budget); !ok {
			return nil, false
		}
	}
	return b, true
}

// byteLevelDecoder turns byte-level characters back into bytes.
type byteLevelDecoder struct{}

func (byteLevelDecoder) decode(tokens []string, _ *decodeBudget) []string {
	var buf []byte
	for _, t := range tokens {
		buf = appendTokenBytes(buf, t)
	}
	return []string{lossy(buf)}
}

func (byteLevelDecoder) tokenBytes(token string, _ *decodeBudget) ([]byte, bool) {
	return appendTokenBytes(nil, token), true
}

// byteFallback turns runs of tokens <0xHH> into characters. A run that is not
// valid UTF-8 becomes one U+FFFD for each of its bytes.
type byteFallback struct{}

// byteToken returns the byte of a token <0xHH>.
func byteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	// A plus sign is a digit to the reference's number parser.
	b, err := strconv.ParseUint(strings.TrimPrefix(token[3:5], "+"), 16, 8)
	return byte(b), err == nil
}

func (byteFallback) decode(tokens []string, _ *decodeBudget) []string {
	out := make([]string, 0, len(tokens))
	var run []byte
	flush := func() {
		switch {
		case len(run) == 0:
		case utf8.Valid(run):
			out = append(out, string(run))
		default:
			for range run {
				out = append(out, "\ufffd")
			}
		}
		run = run[:0]
	}
	for _, t := range tokens {
		if b, ok := byteToken(t); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out
}

func (byteFallback) tokenBytes(token string, _ *decodeBudget) ([]byte, bool) {
	if b, ok := byteToken(token); ok {
		return []byte{b}, true
	}
	return []byte(token), true
}

// fuse joins all tokens into one.
type fuse struct{}

func (fuse) decode(tokens []string, _ *decodeBudget) []string {
	return []string{strings.Join(tokens, "")}
}

func (fuse) tokenBytes(token string, _ *decodeBudget) ([]byte, bool) { return []byte(token), true }

// stripDecoder removes up to start and stop times content at the ends of tokens.
type stripDecoder struct {
	content     string
	start, stop int
}

func (d stripDecoder) decode(tokens []string, _ *decodeBudget) []string {
	for i, t := range tokens {
		for n := 0; n < d.start && strings.HasPrefix(t, d.content); n++ {
			t = t[len(d.content):]
		}
		for n := 0; n < d.stop && strings.HasSuffix(t, d.content); n++ {
			t = t[:len(t)-len(d.content)]
		}
		tokens[i] = t
	}
	return tokens
}

func (d stripDecoder) tokenBytes(token string, _ *decodeBudget) ([]byte, bool) {
	return []byte(token), true
}

// replaceDecoder puts content in the place of each match.
type replaceDecoder struct{ replacer }

func (d replaceDecoder) decode(tokens []string, budget *decodeBudget) []string {
	for i, t := range tokens {
		tokens[i] = d.one(t, budget)
	}
	return tokens
}

// one rewrites a token.
func (d replaceDecoder) one(token string, budget *decodeBudget) string {
	if budget.used() {
		return token
	}
	if lit, ok := d.pattern.(literal); ok && lit != "" { // nearly all files: no memory for a piece
		n := strings.Count(token, string(lit))
		grown := len(token) + n*len(d.content)
		switch {
		case n == 0:
			return token
		case grown > len(token)+budget.room:
			budget.room = 0
			return token
		}
		budget.room -= max(0, n*(len(d.content)-len(lit)))
		return strings.ReplaceAll(token, string(lit), d.content)
	}
	p := newPiece(token)
	p.limit = len(token) + budget.room
	p.bounds = &bounds{steps: budget.steps}
	p, err := d.normalize(p)
	budget.steps = p.bounds.steps
	if errors.Is(err, ErrTooLong) {
		budget.room = 0
	}
	if err != nil {
		return token
	}
	budget.room -= max(0, len(p.s)-len(token))
	return p.s
}

func (d replaceDecoder) tokenBytes(token string, budget *decodeBudget) ([]byte, bool) {
	return []byte(d.one(token, budget)), true
}

// metaspaceDecoder turns the mark back into spaces; that of the first token goes if
// the encoder put one there.
type metaspaceDecoder struct {
	mark    string
	prepend prependScheme
}

func (d metaspaceDecoder) decode(tokens []string, _ *decodeBudget) []string {
	for i, t := range tokens {
		space := " "
		if i == 0 && d.prepend != prependNever {
			space = ""
		}
		tokens[i] = strings.ReplaceAll(t, d.mark, space)
	}
	return tokens
}

func (d metaspaceDecoder) tokenBytes(token string, _ *decodeBudget) ([]byte, bool) {
	return []byte(strings.ReplaceAll(token, d.mark, " ")), true
}

// bpeDecoder turns the suffix that ends words into spaces.
type bpeDecoder struct{ suffix string }

func (d bpeDecoder) decode(tokens []string, _ *decodeBudget) []string {
	for i, t := range tokens {
		space := " "
		if i == len(tokens)-1 {
			space = ""
		}
		tokens[i] = strings.ReplaceAll(t, d.suffix, space)
	}
	return tokens
}

func (d bpeDecoder) tokenBytes(token string, _ *decodeBudget) ([]byte, bool) {
	return bytes.ReplaceAll([]byte(token), []byte(d.suffix), []byte(" ")), true
}

// wordPieceDecoder joins continuations to the token before and puts spaces between
// all others.
type wordPieceDecoder struct {
	prefix  string
	cleanup bool
}

func (d wordPieceDecoder) decode(tokens []string, _ *decodeBudget) []string {
	for i, t := range tokens {
		if i > 0 {
			if rest, ok := strings.CutPrefix(t, d.prefix); ok {
				t = rest
			} else {
				t = " " + t
			}
		}
		if d.cleanup {
			t = cleanUp(t)
		}
		tokens[i] = t
	}
	return tokens
}

func (d wordPieceDecoder) tokenBytes(string, *decodeBudget) ([]byte, bool) { return nil, false }

// ctcDecoder drops repetitions of a token and the token for nothing, as models of speech write text.
type ctcDecoder struct {
	pad, delimiter string
	cleanup        bool
}

func (d ctcDecoder) decode(tokens []string, _ *decodeBudget) []string {
	out := tokens[:0]
	last := ""
	for i, t := range tokens {
		if i > 0 && t == last {
			continue
		}
		last = t
		t = removeAll(t, d.pad)
		if d.cleanup {
			t = strings.ReplaceAll(cleanUp(t), d.delimiter, " ")
		}
		if t != "" {
			out = append(out, t)
		}
	}
	return out
}

func (d ctcDecoder) tokenBytes(string, *decodeBudget) ([]byte, bool) { return nil, false }

func removeAll(s, part string) string {
	if part == "" {
		return s
	}
	return strings.ReplaceAll(s, part, "")
}

// cleanUp removes the spaces that English does not write, one rule after the other.
func cleanUp(s string) string {
	if !strings.Contains(s, " ") {
		return s
	}
	for _, rule := range [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
		{" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}} {
		s = strings.ReplaceAll(s, rule[0], rule[1])
	}
	return s
}

// decoderSpec is the JSON of any decoder.
type decoderSpec struct {
	Type           string
	Decoders       []rawPart
	Pattern        patternSpec
	Content        string
	Start, Stop    int
	Replacement    string
	PrependScheme  string `json:"prepend_scheme"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
	Suffix         *string
	Prefix         *string
	Cleanup        *bool
	PadToken       *string `json:"pad_token"`
	Delimiter      *string `json:"word_delimiter_token"`
}

// decoder builds a decoder from its JSON, nil for null.
func (p *parser) decoder(raw rawPart, path string, depth int) (decoder, error) {
	var spec decoderSpec
	if ok, err := p.part(raw, path, depth, &spec); !ok {
		return nil, err
	}
	switch spec.Type {
	case "Sequence":
		list, err := sequence(spec.Decoders, path, "decoders", depth, p.decoder)
		return decoders(list), err
	case "ByteLevel":
		return byteLevelDecoder{}, nil
	case "ByteFallback":
		return byteFallback{}, nil
	case "Fuse":
		return fuse{}, nil
	case "Strip":
		_, err := oneRune(spec.Content, path+".content")
		return stripDecoder{spec.Content, spec.Start, spec.Stop}, err
	case "Replace":
		m, err := spec.Pattern.compile(path)
		return replaceDecoder{replacer{pattern: m, content: spec.Content}}, err
	case "Metaspace":
		mark, scheme, err := metaspaceMark(spec.Replacement, spec.PrependScheme, spec.AddPrefixSpace, path)
		return metaspaceDecoder{string(mark), scheme}, err
	case "BPEDecoder":
		return bpeDecoder{orString(spec.Suffix, "</w>")}, nil
	case "WordPiece":
		return wordPieceDecoder{orString(spec.Prefix, "##"), either(spec.Cleanup, true)}, nil
	case "CTC":
		return ctcDecoder{orString(spec.PadToken, "<pad>"), orString(spec.Delimiter, "|"), either(spec.Cleanup, true)}, nil
	}
	return nil, unsupported(path, "decoder", spec.Type, "ByteLevel ByteFallback Fuse Strip Replace Metaspace BPEDecoder WordPiece CTC Sequence")
}

// orString decodes a member that may be missing: its default is def.
func orString(v *string, def string) string {
	if v == nil {
		return def
	}
	return *v
}
