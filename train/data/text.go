package data

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// IgnoreLabel is the label of tokens that do not count in the loss.
const IgnoreLabel int32 = -100

// Sequence is a text for a causal language model. Each label is that of the id at the same index:
// the loss shifts them.
type Sequence struct {
	IDs    []int32
	Labels []int32
	// Positions restart at the beginning of each packed sequence. nil counts from 0.
	Positions []int32
}

// Encoder converts text to ids. Spans are the tokens' half-open ranges of code points, [0 0] for
// tokens that special adds.
type Encoder interface {
	Encode(text string, special bool) (ids []int32, spans [][2]int, err error)
}

// Template renders a conversation of JSON objects. With prompt it adds the header of the next
// answer.
type Template interface {
	Render(messages []json.RawMessage, tools json.RawMessage, prompt bool) (string, error)
}

// TextOptions determine which tokens of a text are learned.
type TextOptions struct {
	// MaxLength truncates longer sequences at their end. 0 means no limit.
	MaxLength int
	// EOS is appended to texts and completions that do not end with it. nil appends nothing.
	// Conversations end as their template says.
	EOS *int32
	// LearnPrompt also learns prompts.
	LearnPrompt bool
	// LastAnswer learns only a conversation's last answer. An answer is one message.
	LastAnswer bool
	// Judged cuts completions to MaxLength tokens without their prompt, because [PadJudged] also pairs
	// them with other prompts. It cuts the rows.
	Judged bool
}

func (o TextOptions) finish(s Sequence) Sequence {
	if o.MaxLength > 0 && len(s.IDs) > o.MaxLength {
		s.IDs, s.Labels = s.IDs[:o.MaxLength], s.Labels[:o.MaxLength]
	}
	return s
}

func (o TextOptions) end(s *Sequence) {
	if n := len(s.IDs); o.EOS != nil && (n == 0 || s.IDs[n-1] != *o.EOS) {
		s.IDs, s.Labels = append(s.IDs, *o.EOS), append(s.Labels, *o.EOS)
	}
}

// TokenizeText makes a sequence of all of text.
func TokenizeText(e Encoder, text string, o TextOptions) (Sequence, error) {
	ids, _, err := e.Encode(text, true)
	if err != nil {
		return Sequence{}, fmt.Errorf("data: tokenize: %w", err)
	}
	s := Sequence{IDs: ids, Labels: slices.Clone(ids)}
	o.end(&s)
	return o.finish(s), nil
}

// TokenizePrompt makes a sequence of prompt and completion, concatenated. Only the completion is
// learned. A token across the boundary belongs to the prompt.
func TokenizePrompt(e Encoder, prompt, completion string, o TextOptions) (Sequence, error) {
	ids, spans, err := e.Encode(prompt+completion, true)
	if err != nil {
		return Sequence{}, fmt.Errorf("data: tokenize: %w", err)
	}
	from := utf8.RuneCountInString(prompt)
	if o.LearnPrompt {
		from = 0
	}
	s, err := masked(ids, spans, [][2]int{{from, math.MaxInt}})
	if err != nil {
		return Sequence{}, err
	}
	o.end(&s)
	return o.finish(s), nil
}

// masked keeps the labels of tokens that begin within the ranges of code points, and of tokens
// without a place that follow such a token.
func masked(ids []int32, spans [][2]int, ranges [][2]int) (Sequence, error) {
	if len(spans) != len(ids) {
		return Sequence{}, fmt.Errorf("data: tokenize: got %d offsets for %d tokens", len(spans), len(ids))
	}
	s := Sequence{IDs: ids, Labels: make([]int32, len(ids))}
	learned := false
	for i, id := range ids {
		if at := spans[i]; at != [2]int{} {
			learned = slices.ContainsFunc(ranges, func(r [2]int) bool { return at[0] >= r[0] && at[0] < r[1] })
		}
		s.Labels[i] = IgnoreLabel
		if learned {
			s.Labels[i] = id
		}
	}
	return s, nil
}

// PackOptions determine how sequences share blocks.
type PackOptions struct {
	// Split cuts sequences so that all blocks except the last are full. Otherwise a sequence that
	// does not fit begins a new block, and one longer than a block is truncated.
	Split bool
	// DropLast omits a last block that is not full.
	DropLast bool
}

// Pack joins sequences, in order, into blocks of length ids. Positions restart in each sequence,
// and its first label is [IgnoreLabel], because no token before it belongs to it. Models of package
// train/model attend within a sequence only, if a batch has these positions.
func Pack(sequences []Sequence, length int, o PackOptions) ([]Sequence, error) {
	var blocks []Sequence
	p, err := NewPacker(length, o, func(block Sequence) error {
		blocks = append(blocks, block)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, s := range sequences {
		if err := p.Add(s); err != nil {
			return nil, fmt.Errorf("data: sequence %d: %w", i, err)
		}
	}
	return blocks, p.Flush()
}

// Packer is like [Pack], for sequences that arrive one by one.
type Packer struct {
	length int
	o      PackOptions
	emit   func(Sequence) error
	block  Sequence
}

// NewPacker returns a Packer that passes full blocks to emit.
func NewPacker(length int, o PackOptions, emit func(Sequence) error) (*Packer, error) {
	if length < 1 {
		return nil, fmt.Errorf("data: pack: got blocks of %d tokens, want 1 or more", length)
	}
	return &Packer{length: length, o: o, emit: emit}, nil
}

func (p *Packer) end() error {
	block := p.block
	if p.block = (Sequence{}); len(block.IDs) == 0 {
		return nil
	}
	return p.emit(block)
}

// Add appends a sequence.
func (p *Packer) Add(s Sequence) error {
	if len(s.Labels) != len(s.IDs) {
		return fmt.Errorf("got %d labels for %d ids", len(s.Labels), len(s.IDs))
	}
	if !p.o.Split {
		if len(s.IDs) > p.length {
			s.IDs, s.Labels = s.IDs[:p.length], s.Labels[:p.length]
		}
		if len(p.block.IDs)+len(s.IDs) > p.length {
			if err := p.end(); err != nil {
				return err
			}
		}
	}
	for at := range s.IDs {
		if len(p.block.IDs) == p.length {
			if err := p.end(); err != nil {
				return err
			}
		}
		label := s.Labels[at]
		if at == 0 {
			label = IgnoreLabel
		}
		p.block.IDs = append(p.block.IDs, s.IDs[at])
		p.block.Labels = append(p.block.Labels, label)
		p.block.Positions = append(p.block.Positions, int32(at))
	}
	return nil
}

// Flush emits the last block.
func (p *Packer) Flush() error {
	if p.o.DropLast && len(p.block.IDs) < p.length {
		p.block = Sequence{}
	}
	return p.end()
}

// TokenBatch is a batch of sequences, row by row.
type TokenBatch struct {
	Rows, Columns int
	IDs, Labels   []int32
	// Mask is 1 for tokens and 0 for padding.
	Mask []int32
	// Positions are nil unless a sequence has them.
	Positions []int32
}

// Ints returns the ids and labels as package train/model takes them, row by row.
func (b TokenBatch) Ints() (ids, labels []int) {
	ids, labels = make([]int, len(b.IDs)), make([]int, len(b.Labels))
	for i, id := range b.IDs {
		ids[i] = int(id)
	}
	for i, label := range b.Labels {
		labels[i] = int(label)
	}
	return ids, labels
}

// Padding configures how [PadTokens] fills rows.
type Padding struct {
	// ID is the id of padding.
	ID int32
	// Multiple rounds up the length of rows. 0 means 1.
	Multiple int
	// Length is the length of all rows. 0 means that of the longest sequence. Longer sequences are
	// an error.
	Length int
	// Left pads before the tokens.
	Left bool
}

// PadTokens returns the Collate that pads sequences to the longest of their batch. Padding, and the
// first token after it, have the label [IgnoreLabel].
func PadTokens(p Padding) Collate[Sequence, TokenBatch] {
	return func(samples []Sequence) (TokenBatch, error) {
		b := TokenBatch{Rows: len(samples), Columns: p.Length}
		positions := false
		for i, s := range samples {
			if len(s.Labels) != len(s.IDs) || s.Positions != nil && len(s.Positions) != len(s.IDs) {
				return b, fmt.Errorf("data: collate: sequence %d: got %d ids, %d labels and %d positions", i, len(s.IDs), len(s.Labels), len(s.Positions))
			}
			if p.Length > 0 && len(s.IDs) > p.Length {
				return b, fmt.Errorf("data: collate: sequence %d: got %d tokens, want at most %d", i, len(s.IDs), p.Length)
			}
			b.Columns = max(b.Columns, len(s.IDs))
			positions = positions || s.Positions != nil
		}
		if m := p.Multiple; m > 1 {
			b.Columns = (b.Columns + m - 1) / m * m
		}
		n := b.Rows * b.Columns
		b.IDs, b.Labels, b.Mask = filled(n, p.ID), filled(n, IgnoreLabel), make([]int32, n)
		if positions {
			b.Positions = make([]int32, n)
		}
		for i, s := range samples {
			at := i * b.Columns
			if p.Left {
				at += b.Columns - len(s.IDs)
			}
			copy(b.IDs[at:], s.IDs)
			copy(b.Labels[at:], s.Labels)
			if at > i*b.Columns && len(s.IDs) > 0 { // padding predicts nothing
				b.Labels[at] = IgnoreLabel
			}
			for j := range s.IDs {
				b.Mask[at+j] = 1
				if positions && s.Positions == nil {
					b.Positions[at+j] = int32(j)
				}
			}
			if s.Positions != nil {
				copy(b.Positions[at:], s.Positions)
			}
		}
		return b, nil
	}
}

func filled(n int, v int32) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = v
	}
	return x
}
