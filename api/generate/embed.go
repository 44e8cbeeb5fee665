package generate

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/meta"
)

// EmbedRequest is a list of prompts to embed.
type EmbedRequest struct {
	Prompts    [][]int32
	Param      string // name of the prompts for errors; "" means "prompts"
	Dimensions int    // 0 keeps all; otherwise an embedding keeps the first ones, scaled to length 1
	Normalise  bool   // scale embeddings to length 1 even if the model does not
}

// inFlight is the maximum number of a request's prompts that are in the engine at a time.
const inFlight = 32

// vectorBytes is the memory of one number of an embedding until the request is answered.
const vectorBytes = 8

// poolings maps meta's modes of pooling to the engine's.
var poolings = map[meta.PoolingMode]engine.Pooling{
	meta.PoolLast: engine.PoolLast, meta.PoolFirst: engine.PoolFirst, meta.PoolMean: engine.PoolMean,
}

// Embed returns an embedding for each prompt, in the prompts' order. It ends when ctx does. Errors
// are of type *wire.Error, or ctx's error.
func (m *Model) Embed(ctx context.Context, r EmbedRequest) (vectors [][]float32, usage Usage, err error) {
	if what := m.Pooling.Unsupported; what != "" {
		return nil, usage, wire.Invalidf("model", "The model %s makes embeddings in a way that this server does not support: %s.", m.Name, what)
	}
	if r.Dimensions < 0 {
		return nil, usage, wire.Invalidf("dimensions", "Invalid value for 'dimensions': %d, want 0 or more.", r.Dimensions)
	}
	r.Param = cmp.Or(r.Param, "prompts")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // cancels all submitted requests
	claim, client := wire.ClaimOf(ctx), wire.ClientOf(ctx)
	var streams []*engine.Stream
	for i := range r.Prompts {
		for next := len(streams); next < min(i+min(inFlight, m.engine.Places()), len(r.Prompts)); next++ {
			s, err := m.engine.Submit(ctx, engine.Request{Background: wire.InBackground(ctx), Client: client.ID, Adapter: m.Adapter, Adapted: m.adapted, Prompt: r.Prompts[next], Embed: poolings[m.Pooling.Mode]})
			if err != nil {
				return nil, usage, m.embedError(ctx, err, r.Param)
			}
			client.Spent(len(r.Prompts[next]), 0)
			streams = append(streams, s)
		}
		vector, err := embedding(ctx, streams[i])
		if err != nil {
			return nil, usage, m.embedError(ctx, err, r.Param)
		}
		if !finite(vector) {
			return nil, usage, &wire.Error{Kind: wire.Internal, Message: "The model's hidden states are not finite."}
		}
		if r.Dimensions > len(vector) {
			return nil, usage, wire.Invalidf("dimensions", "Invalid value for 'dimensions': %d; the embeddings of %s have %d.", r.Dimensions, m.Name, len(vector))
		}
		if r.Dimensions > 0 {
			vector = vector[:r.Dimensions]
		}
		if m.Pooling.Normalise || r.Normalise || r.Dimensions > 0 {
			normalise(vector)
		}
		if err := claim.Keep(vectorBytes * len(vector)); err != nil {
			return nil, usage, err
		}
		vectors = append(vectors, vector)
		usage.Prompt += len(r.Prompts[i])
		usage.Cached += streams[i].Cached()
		streams[i] = nil // it has ended
	}
	return vectors, usage, nil
}

func (m *Model) embedError(ctx context.Context, err error, param string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return AsError(err, param)
}

var errNoEmbedding = errors.New("generate: the engine brought no embedding")

// embedding waits for the only event of a stream.
func embedding(ctx context.Context, s *engine.Stream) ([]float32, error) {
	ev, err := s.Next(ctx)
	if errors.Is(err, io.EOF) || err == nil && len(ev.Embedding) == 0 {
		return nil, errNoEmbedding
	}
	return ev.Embedding, err
}

func finite(v []float32) bool {
	for _, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return false
		}
	}
	return true
}

// normalise scales v to length 1. It leaves a zero vector unchanged.
func normalise(v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	scale := 1 / math.Sqrt(sum)
	for i, x := range v {
		v[i] = float32(float64(x) * scale)
	}
}
