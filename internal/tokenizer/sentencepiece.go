package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// maxTokens is the largest number of tokens of a vocabulary's file. It bounds the memory that a file
// of many empty tokens takes. The largest published vocabularies have a quarter of a million.
const maxTokens = 1 << 22

// The kinds of SentencePiece's pieces that matter here.
const (
	pieceNormal      = 1
	pieceControl     = 3
	pieceUserDefined = 4
)

// spPiece is a token of a SentencePiece model.
type spPiece struct {
	text  string
	score float32
	kind  uint8
}

// spModel is what a SentencePiece model says about its tokenizer: the message ModelProto.
type spModel struct {
	pieces       []spPiece
	unigram      bool
	byteFallback bool
	ends         [3]string // the tokens that begin and end a text, and the unknown token
	ids          [3]int32  // their ids, negative for none
	charsmap     []byte    // the compiled character map, empty for none

	dummyPrefix  bool // a space is added before a text
	removeSpaces bool // spaces at the ends of a text go, and several become one
	escapeSpaces bool // spaces become "▁"
}

// parseSentencePiece reads a model. Its strings share one copy of data.
func parseSentencePiece(data []byte) (*spModel, error) {
	m := &spModel{unigram: true, ends: [3]string{"<s>", "</s>", "<unk>"}, ids: [3]int32{1, 2, 0}, dummyPrefix: true, removeSpaces: true, escapeSpaces: true}
	count := 0
	if err := protoFields(data, func(f protoField) error {
		if f.number == 1 {
			if count++; f.kind != protoBytes || count > maxTokens {
				return fmt.Errorf("got more than %d pieces, or one that is not a message", maxTokens)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if count == 0 {
		return nil, errors.New("the file has no pieces")
	}
	m.pieces = make([]spPiece, 0, count)
	err := protoFields(data, func(f protoField) error {
		if f.kind != protoBytes {
			return nil
		}
		switch f.number {
		case 1:
			p, err := parsePiece(f.bytes)
			if err != nil {
				return fmt.Errorf("piece %d: %w", len(m.pieces), err)
			}
			m.pieces = append(m.pieces, p)
		case 2:
			return m.parseTrainer(f.bytes)
		case 3:
			return m.parseNormalizer(f.bytes)
		}
		return nil
	})
	return m, err
}

func parsePiece(data []byte) (spPiece, error) {
	p := spPiece{kind: pieceNormal}
	err := protoFields(data, func(f protoField) error {
		switch {
		case f.number == 1 && f.kind == protoBytes:
			if !utf8.Valid(f.bytes) {
				return fmt.Errorf("got %.40q, want UTF-8", f.bytes)
			}
			p.text = string(f.bytes)
		case f.number == 2 && f.kind == protoFixed32:
			p.score = math.Float32frombits(uint32(f.value))
		case f.number == 3 && f.kind == protoVarint:
			p.kind = uint8(min(f.value, math.MaxUint8))
		}
		return nil
	})
	return p, err
}

// parseTrainer reads the settings that the model was trained with.
func (m *spModel) parseTrainer(data []byte) error {
	return protoFields(data, func(f protoField) error {
		switch {
		case f.number == 3 && f.kind == protoVarint:
			if f.value != 1 && f.value != 2 {
				return fmt.Errorf("models of type %d are not supported (supported: 1, Unigram, and 2, BPE)", f.value)
			}
			m.unigram = f.value == 1
		case f.number == 35 && f.kind == protoVarint:
			m.byteFallback = f.value != 0
		case (f.number == 41 || f.number == 42) && f.kind == protoVarint:
			m.ids[f.number-41] = int32(f.value)
		case f.number == 40 && f.kind == protoVarint:
			m.ids[2] = int32(f.value)
		case (f.number == 46 || f.number == 47) && f.kind == protoBytes:
			m.ends[f.number-46] = string(f.bytes)
		case f.number == 45 && f.kind == protoBytes:
			m.ends[2] = string(f.bytes)
		}
		return nil
	})
}

// parseNormalizer reads how texts are normalized.
func (m *spModel) parseNormalizer(data []byte) error {
	return protoFields(data, func(f protoField) error {
		switch {
		case f.number == 2 && f.kind == protoBytes:
			m.charsmap = f.bytes
		case f.number == 3 && f.kind == protoVarint:
			m.dummyPrefix = f.value != 0
		case f.number == 4 && f.kind == protoVarint:
			m.removeSpaces = f.value != 0
		case f.number == 5 && f.kind == protoVarint:
			m.escapeSpaces = f.value != 0
		}
		return nil
	})
}

// The wire types of Protocol Buffers.
const (
	protoVarint  = 0
	protoFixed64 = 1
	protoBytes   = 2
	protoFixed32 = 5
)

// protoField is a field of a message: bytes for protoBytes, value for the others.
type protoField struct {
	number uint64
	kind   uint8
	value  uint64
	bytes  []byte
}

var errProto = errors.New("the file is not a SentencePiece model, or is cut off")

// protoFields calls each for the fields of a message in order.
func protoFields(data []byte, each func(protoField) error) error {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 || tag>>3 == 0 {
			return errProto
		}
		data = data[n:]
		f := protoField{number: tag >> 3, kind: uint8(tag & 7)}
		size := 0
		switch f.kind {
		case protoVarint:
			if f.value, size = binary.Uvarint(data); size <= 0 {
				return errProto
			}
		case protoFixed64, protoFixed32:
			if size = 8; f.kind == protoFixed32 {
				size = 4
			}
			if len(data) < size {
				return errProto
			}
			for i := size - 1; i >= 0; i-- {
				f.value = f.value<<8 | uint64(data[i])
			}
		case protoBytes:
			length, n := binary.Uvarint(data)
			if n <= 0 || length > uint64(len(data)-n) {
				return errProto
			}
			size = n + int(length)
			f.bytes = data[n:size]
		default:
			return errProto
		}
		data = data[size:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}
