package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	patternCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternKimi   = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// tiktokenPatterns are how models split texts whose vocabulary is in tiktoken's format, which does not
// say so. Moonlight is a deepseek_v3 with Kimi's tokenizer; other models of that type have a
// tokenizer.json.
var tiktokenPatterns = map[string]string{
	"kimi_k2": patternKimi, "kimi_k25": patternKimi, "kimi_linear": patternKimi, "deepseek_v3": patternKimi,
	"llama": patternCL100K, "mllama": patternCL100K, "dbrx": patternCL100K, "qwen": patternCL100K,
}

// loadTikToken reads lines of a token in base64 and its id.
func (f *folder) loadTikToken(file string) (*Tokenizer, error) {
	pattern, ok := tiktokenPatterns[f.model]
	if !ok {
		return nil, &unknownError{fmt.Sprintf("it is not known how models of type %q split texts", f.model)}
	}
	data, err := f.read(file)
	if err != nil {
		return nil, err
	}
	tokens, err := parseTikToken(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	b, err := newByteBPE(tokens, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c := parts{pre: splitPattern(pattern, false), decoder: byteDecoder}
	if len(f.listed) > 0 {
		if c.first, err = f.reserved(len(tokens)); err != nil {
			return nil, err
		}
	}
	extra, err := f.extra()
	if err != nil {
		return nil, err
	}
	for _, a := range extra {
		c.first = append(c.first, AddedToken{Content: a.Content, Special: true})
	}
	return f.build(b, c, nil)
}

// reserved lists the special tokens behind the n tokens of a vocabulary, up to the last one that the settings
// list. Those between them have names of their own.
func (f *folder) reserved(n int) ([]AddedToken, error) {
	last := f.listed[len(f.listed)-1].ID
	if int(last) > n+maxReserved {
		return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: got the id %d, want one near the %d tokens of the vocabulary", last, n)
	}
	byID := map[int32]string{}
	for _, a := range f.listed {
		byID[a.ID] = a.Content
	}
	var list []AddedToken
	for id := int32(n); id <= last; id++ {
		name, ok := byID[id]
		if !ok {
			name = fmt.Sprintf("<|reserved_token_%d|>", id)
		}
		list = append(list, AddedToken{ID: id, Content: name, Special: true})
	}
	return list, nil
}

// maxReserved is the number of special tokens that a vocabulary may have without their names.
const maxReserved = 1 << 16

// rankedToken is a token of a byte-level vocabulary.
type rankedToken struct {
	text string // the bytes
	id   int32
}

// parseTikToken reads lines of a token in base64 and its id.
func parseTikToken(data []byte) ([]rankedToken, error) {
	count := bytes.Count(data, []byte("\n")) + 1
	if count > maxTokens {
		return nil, fmt.Errorf("got %d lines, want at most %d", count, maxTokens)
	}
	list, seen := make([]rankedToken, 0, count), make(map[string]int, count)
	for n := 1; len(data) > 0; n++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		fields := bytes.Fields(line)
		if len(fields) == 0 && n > 1 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d: got %.60q, want a token in base64 and an id", n, line)
		}
		token, err := base64.StdEncoding.DecodeString(string(fields[0]))
		id, err2 := strconv.ParseInt(string(fields[1]), 10, 32)
		if err != nil || err2 != nil || id < 0 {
			return nil, fmt.Errorf("line %d: got %.60q, want a token in base64 and an id up to %d", n, line, maxID)
		}
		if k, twice := seen[string(token)]; twice {
			list[k].id = int32(id)
			continue
		}
		seen[string(token)] = len(list)
		list = append(list, rankedToken{string(token), int32(id)})
	}
	return list, nil
}

// newByteBPE makes a byte-level BPE in which pairs are merged in the order of the ids of what they make.
// special are tokens of the vocabulary that no merge makes, by id.
func newByteBPE(tokens []rankedToken, special []string) (*bpe, error) {
	b := &bpe{unk: -1, cache: newWordCache(), ignoreMerges: true}
	ids := make(map[string]int32, len(tokens))
	top := int32(len(special)) - 1
	for _, t := range tokens {
		ids[t.text] = t.id
		top = max(top, t.id)
	}
	b.vocab = newVocab(len(tokens)+len(special), 0, top)
	var spelled []byte
	for _, t := range tokens {
		spelled = appendByteChars(spelled[:0], t.text)
		b.set(spelled, t.id)
	}
	list, err := byteMerges(tokens, ids)
	if err != nil {
		return nil, err
	}
	for id, name := range special {
		b.set([]byte(name), int32(id))
	}
	b.setMerges(list)
	return b, nil
}

// byteMerges lists the pairs of tokens that make a token, in the order of the ids of what they make, of
// their left part and of their right part.
func byteMerges(tokens []rankedToken, ids map[string]int32) ([]merge, error) {
	list := make([]merge, 0, len(tokens))
	work := mergeWork
	for _, t := range tokens {
		for at := 1; at < len(t.text); at++ {
			if work -= len(t.text); work < 0 {
				return nil, errMergeWork
			}
			left, ok := ids[t.text[:at]]
			if !ok {
				continue
			}
			if right, ok := ids[t.text[at:]]; ok {
				list = append(list, merge{left, right, t.id})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b merge) int {
		return cmp.Or(cmp.Compare(a.fused, b.fused), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right))
	})
	return list, nil
}

// isTikToken reports whether data begins as a vocabulary in tiktoken's format does.
func isTikToken(data []byte) bool {
	line, _, _ := bytes.Cut(data[:min(len(data), 1<<12)], []byte("\n"))
	token, id, ok := strings.Cut(strings.TrimRightFunc(string(line), unicode.IsSpace), " ")
	_, err := base64.StdEncoding.DecodeString(token)
	_, err2 := strconv.ParseUint(id, 10, 31)
	return ok && err == nil && err2 == nil && utf8.Valid(line)
}
