package openaijson

import (
	"math"
	"strconv"

	"github.com/heftai/heft/api/generate"
)

// minLogProb replaces minus infinity, which JSON cannot represent.
const minLogProb = -9999

// Finite returns a log-probability that JSON can represent: it replaces NaN and minus infinity by
// -9999.
func Finite(p float32) float32 {
	if p < minLogProb || math.IsNaN(float64(p)) {
		return minLogProb
	}
	return p
}

// TokenNames names the tokens of Model by their text, or as "token_id:N" if IDs is set.
type TokenNames struct {
	Model *generate.Model
	IDs   bool
}

// Name returns a token's name and its bytes. whole reports whether the token is valid text by
// itself, and not a part of a character.
func (n TokenNames) Name(id int32) (name string, bytes []byte, whole bool) {
	name, bytes, whole = n.Model.TokenText(id)
	if n.IDs {
		return "token_id:" + strconv.Itoa(int(id)), bytes, true
	}
	return name, bytes, whole
}

// Token is a generated token with its log-probability and the most likely tokens at its position.
type Token struct {
	tokenLogProb
	Top []tokenLogProb `json:"top_logprobs"`
}

type tokenLogProb struct {
	Token   string  `json:"token"`
	LogProb float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// NewToken converts t, and names its tokens with n.
func NewToken(n TokenNames, t *generate.Token) Token {
	c := Token{tokenLogProb: newTokenLogProb(n, generate.LogProb{ID: t.ID, LogProb: t.LogProb}), Top: make([]tokenLogProb, len(t.Top))}
	for k, p := range t.Top {
		c.Top[k] = newTokenLogProb(n, p)
	}
	return c
}

func newTokenLogProb(n TokenNames, p generate.LogProb) tokenLogProb {
	name, raw, _ := n.Name(p.ID)
	t := tokenLogProb{Token: name, LogProb: Finite(p.LogProb)}
	if raw != nil {
		t.Bytes = make([]int, len(raw))
		for i, b := range raw {
			t.Bytes[i] = int(b)
		}
	}
	return t
}
