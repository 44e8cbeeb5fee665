package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// tekkenSpecial are the special tokens of files that are older than their list.
var tekkenSpecial = strings.Fields("<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] " +
	"[TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]")

// tekken is a vocabulary in Mistral's format.
type tekken struct {
	config struct {
		Pattern string
		Size    *int `json:"default_vocab_size"`
		Special *int `json:"default_num_special_tokens"`
	}
	tokens  []rankedToken
	special []string
}

// loadTekken reads tekken.json.
func (f *folder) loadTekken() (*Tokenizer, error) {
	data, err := f.read("tekken.json")
	if err != nil {
		return nil, err
	}
	v, err := parseTekken(data)
	if err != nil {
		return nil, fmt.Errorf("tekken.json: %w", err)
	}
	b, err := newByteBPE(v.tokens, v.special)
	if err != nil {
		return nil, fmt.Errorf("tekken.json: %w", err)
	}
	c := parts{pre: splitPattern(v.config.Pattern, false), decoder: byteDecoder}
	for _, name := range v.special {
		c.first = append(c.first, AddedToken{Content: name, Special: true})
	}
	return f.build(b, c, nil)
}

// parseTekken reads the file. Ids begin with the special tokens.
func parseTekken(data []byte) (*tekken, error) {
	v := &tekken{}
	var listed rawPart
	seen := map[string]bool{}
	s := newScanner(data, 0)
	err := s.Object("", func(key []byte) error {
		name := string(key)
		if seen[name] {
			return s.fail("%q stands twice", name)
		}
		seen[name] = true
		if name == "vocab" {
			return v.parseVocab(s)
		}
		s.Peek()
		raw, err := s.Balanced()
		if err != nil {
			return err
		}
		switch name {
		case "config":
			if err := json.Unmarshal(raw, &v.config); err != nil {
				return decodeError("config", err)
			}
		case "special_tokens":
			listed = rawPart(raw)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if v.config.Pattern == "" {
		return nil, fmt.Errorf("config.pattern: missing")
	}
	return v, v.number(listed)
}

// parseVocab reads the tokens. A token's place is its rank.
func (v *tekken) parseVocab(s *scanner) error {
	return s.Array("", func(i int) error {
		if i >= maxTokens {
			return s.fail("more than %d tokens", maxTokens)
		}
		t := rankedToken{id: int32(i)}
		found := false
		err := s.Object("", func(key []byte) error {
			s.Peek()
			if string(key) != "token_bytes" {
				_, err := s.Balanced()
				return err
			}
			encoded, err := s.String()
			if err != nil {
				return err
			}
			token, err := base64.StdEncoding.DecodeString(string(encoded))
			if err != nil {
				return s.fail("got %.60q, want base64", encoded)
			}
			t.text, found = string(token), true
			return nil
		})
		if err == nil && !found {
			err = s.fail("token %d has no token_bytes", i)
		}
		v.tokens = append(v.tokens, t)
		return err
	})
}

// number lists the special tokens and gives the others the ids behind them.
func (v *tekken) number(listed rawPart) error {
	v.special = slices.Clone(tekkenSpecial)
	if len(listed) > 0 && string(listed) != "null" {
		var list []struct {
			Rank int
			Name string `json:"token_str"`
		}
		if err := json.Unmarshal(listed, &list); err != nil {
			return decodeError("special_tokens", err)
		}
		v.special = make([]string, len(list))
		for _, t := range list {
			if t.Rank < 0 || t.Rank >= len(list) || v.special[t.Rank] != "" || t.Name == "" {
				return fmt.Errorf("special_tokens: got rank %d for %.40q, want each rank from 0 once, with a name", t.Rank, t.Name)
			}
			v.special[t.Rank] = t.Name
		}
	}
	count := either(v.config.Special, len(v.special))
	if count < len(v.special) || count > maxTokens {
		return fmt.Errorf("config.default_num_special_tokens: got %d, want %d to %d", count, len(v.special), maxTokens)
	}
	for id := len(v.special); id < count; id++ {
		v.special = append(v.special, fmt.Sprintf("<SPECIAL_%d>", id))
	}
	if size := v.config.Size; size != nil {
		if *size < count || *size-count > len(v.tokens) {
			return fmt.Errorf("config.default_vocab_size: got %d, want %d to %d", *size, count, count+len(v.tokens))
		}
		v.tokens = v.tokens[:*size-count]
	}
	for i := range v.tokens {
		v.tokens[i].id += int32(count)
	}
	return nil
}
