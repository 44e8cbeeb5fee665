package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
)

// postProcessor adds special tokens around sequences. parts are the sequences; the
// result's parts are joined in order.
type postProcessor interface {
	process(parts []Encoding, addSpecial bool) ([]Encoding, error)
}

// postProcessors applies each in turn.
type postProcessors []postProcessor

func (list postProcessors) process(parts []Encoding, addSpecial bool) ([]Encoding, error) {
	for _, p := range list {
		var err error
		if parts, err = p.process(parts, addSpecial); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// setType gives all tokens of e the type id.
func (e *Encoding) setType(id int32) {
	for i := range e.TypeIDs {
		e.TypeIDs[i] = id
	}
}

// template lays sequences and special tokens out as the file says.
type template struct {
	single, pair []templatePiece
}

// templatePiece is a sequence or, if tokens is not nil, special tokens.
type templatePiece struct {
	sequence int
	tokens   *Encoding
	typeID   int32
}

func (t *template) process(parts []Encoding, addSpecial bool) ([]Encoding, error) {
	pieces := t.single
	switch len(parts) {
	case 1:
	case 2:
		pieces = t.pair
	default:
		return nil, fmt.Errorf("tokenizer: post_processor: a template for %d sequences", len(parts))
	}
	var out []Encoding
	for _, p := range pieces {
		if p.tokens != nil {
			if addSpecial {
				out = append(out, p.tokens.clone())
			}
			continue
		}
		if p.sequence >= len(parts) {
			return nil, fmt.Errorf("tokenizer: post_processor: the template for %d sequences names sequence B", len(parts))
		}
		e := parts[p.sequence].clone()
		e.setType(p.typeID)
		out = append(out, e)
	}
	return out, nil
}

// wrap puts special tokens around one or two sequences: BERT's and RoBERTa's form.
type wrap struct {
	before, between, after *Encoding // around A; before B and after it
	typeB                  int32
	trim                   *trimOffsets
}

func (w *wrap) process(parts []Encoding, addSpecial bool) ([]Encoding, error) {
	if w.trim != nil {
		var err error
		if parts, err = w.trim.process(parts, addSpecial); err != nil {
			return nil, err
		}
	}
	for i := range parts {
		parts[i].setType(w.typeB * int32(min(i, 1)))
	}
	if !addSpecial {
		return parts, nil
	}
	var out []Encoding
	for i, p := range parts {
		before := w.before
		if i > 0 {
			before = w.between
		}
		after := w.after.clone()
		after.setType(w.typeB * int32(min(i, 1)))
		if before != nil {
			out = append(out, before.clone())
		}
		out = append(out, p, after)
	}
	return out, nil
}

// trimOffsets takes white space at the ends of tokens out of their offsets. With
// prefixSpace a single space at the start of the text is one that was added.
type trimOffsets struct{ prefixSpace bool }

func (t *trimOffsets) process(parts []Encoding, _ bool) ([]Encoding, error) {
	for _, e := range parts {
		for i := range e.Offsets {
			t.trim(e.Tokens[i], &e.Offsets[i], i == 0)
		}
	}
	return parts, nil
}

func (t *trimOffsets) trim(token string, at *[2]int, first bool) {
	space := byteToRune(' ')
	isSpace := func(r rune) bool { return r == space || unicode.IsSpace(r) }
	size := len([]rune(token))
	lead := size - len([]rune(strings.TrimLeftFunc(token, isSpace)))
	trail := size - len([]rune(strings.TrimRightFunc(token, isSpace)))
	if lead > 0 {
		if t.prefixSpace && lead == 1 && (first || at[0] == 0) {
			lead = 0
		}
		at[0] = min(at[0]+lead, at[1])
	}
	if trail > 0 && at[1] >= trail {
		at[1] = max(at[1]-trail, at[0])
	}
}

// postProcessorSpec is the JSON of any post-processor.
type postProcessorSpec struct {
	Type           string
	Processors     []rawPart
	Single, Pair   []templateItem
	SpecialTokens  map[string]specialSpec `json:"special_tokens"`
	AddPrefixSpace *bool                  `json:"add_prefix_space"`
	TrimOffsets    *bool                  `json:"trim_offsets"`
	Sep, Cls       tokenPair
}

type templateItem struct {
	SpecialToken, Sequence *struct {
		ID     string
		TypeID int32 `json:"type_id"`
	}
}

type specialSpec struct {
	IDs    []int32
	Tokens []string
}

// tokenPair is a token and its id: ["[SEP]", 102].
type tokenPair [2]any

// postProcessor builds a post-processor from its JSON, nil for null.
func (p *parser) postProcessor(raw rawPart, path string, depth int) (postProcessor, error) {
	var spec postProcessorSpec
	if ok, err := p.part(raw, path, depth, &spec); !ok {
		return nil, err
	}
	switch spec.Type {
	case "Sequence":
		list, err := sequence(spec.Processors, path, "processors", depth, p.postProcessor)
		return postProcessors(list), err
	case "ByteLevel":
		if !either(spec.TrimOffsets, true) {
			return postProcessors{}, nil
		}
		return &trimOffsets{either(spec.AddPrefixSpace, true)}, nil
	case "TemplateProcessing":
		return spec.template(path)
	case "BertProcessing", "RobertaProcessing":
		return spec.wrap(path)
	}
	return nil, unsupported(path, "post-processor", spec.Type, "TemplateProcessing ByteLevel BertProcessing RobertaProcessing Sequence")
}

func (spec *postProcessorSpec) wrap(path string) (postProcessor, error) {
	cls, err := spec.Cls.encoding(path + ".cls")
	if err != nil {
		return nil, err
	}
	sep, err := spec.Sep.encoding(path + ".sep")
	if err != nil {
		return nil, err
	}
	if spec.Type == "BertProcessing" {
		return &wrap{before: cls, after: sep, typeB: 1}, nil
	}
	w := &wrap{before: cls, between: sep, after: sep}
	if either(spec.TrimOffsets, true) {
		w.trim = &trimOffsets{either(spec.AddPrefixSpace, true)}
	}
	return w, nil
}

func (t tokenPair) encoding(path string) (*Encoding, error) {
	token, ok := t[0].(string)
	id, ok2 := t[1].(float64)
	if !ok || !ok2 || id < 0 || id > maxID {
		return nil, fmt.Errorf("%s: not a pair of token and id", path)
	}
	return specialEncoding([]int32{int32(id)}, []string{token}, 0), nil
}

// specialEncoding returns the encoding of special tokens, which have no place in a text.
func specialEncoding(ids []int32, tokens []string, typeID int32) *Encoding {
	e := &Encoding{IDs: ids, Tokens: tokens, Offsets: make([][2]int, len(ids)), TypeIDs: make([]int32, len(ids))}
	e.setType(typeID)
	return e
}

func (spec *postProcessorSpec) template(path string) (*template, error) {
	t := new(template)
	for _, side := range []struct {
		name  string
		items []templateItem
		to    *[]templatePiece
	}{{"single", spec.Single, &t.single}, {"pair", spec.Pair, &t.pair}} {
		for i, item := range side.items {
			at := index(path, side.name, i)
			switch {
			case item.Sequence != nil:
				n := strings.Index("AB", item.Sequence.ID)
				if n < 0 || len(item.Sequence.ID) != 1 {
					return nil, fmt.Errorf("%s: the sequence %q is neither A nor B", at, item.Sequence.ID)
				}
				*side.to = append(*side.to, templatePiece{sequence: n, typeID: item.Sequence.TypeID})
			case item.SpecialToken != nil:
				s, ok := spec.SpecialTokens[item.SpecialToken.ID]
				if !ok || len(s.IDs) != len(s.Tokens) {
					return nil, fmt.Errorf("%s: special_tokens does not define %q", at, item.SpecialToken.ID)
				}
				for _, id := range s.IDs {
					if id < 0 {
						return nil, fmt.Errorf("%s: the id %d", at, id)
					}
				}
				e := specialEncoding(s.IDs, s.Tokens, item.SpecialToken.TypeID)
				*side.to = append(*side.to, templatePiece{tokens: e})
			default:
				return nil, fmt.Errorf("%s: want Sequence or SpecialToken", at)
			}
		}
	}
	return t, nil
}
