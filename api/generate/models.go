package generate

import (
	"context"
	"io"
	"strings"

	"github.com/heftai/heft/api/wire"
)

// Models are the models of a server, at least one. The first answers requests that name none.
type Models []*Model

// latest ends names of models as Ollama's clients write them.
const latest = ":latest"

// Find returns the model of a name, the first for "". A name that no model has is looked for without ":latest", too.
// It fails with an error of kind wire.NoModel.
func (ms Models) Find(name string) (*Model, error) {
	for _, m := range ms {
		if name == "" || m.Name == name {
			return m, nil
		}
	}
	if short, ok := strings.CutSuffix(name, latest); ok && short != "" {
		return ms.Find(short)
	}
	return nil, &wire.Error{Kind: wire.NoModel, Message: "The model `" + name + "` does not exist."}
}

// Of returns the model that a request names in its field "model".
func (ms Models) Of(f *wire.Fields) (*Model, error) {
	var name string
	if f.String("model", &name); f.Null("model") {
		f.WrongType("model", "a string")
	}
	if f.Err() != nil {
		return nil, f.Err()
	}
	return ms.Find(name)
}

// Read reads the body of a request and passes its fields, and the model that it names, to decode. It
// waits until there is memory to decode them. The memory of the body is released when decode has
// returned. Errors are of type *wire.Error, or those of decode.
func (ms Models) Read(ctx context.Context, body io.ReadCloser, decode func(context.Context, *wire.Fields, *Model) error) error {
	defer body.Close()
	b, err := wire.ReadBodyWithin(ctx, body, TextLimit(ms))
	if err != nil {
		return err
	}
	f, err := wire.ParseFields(b)
	if err != nil {
		return err
	}
	claim := wire.ClaimOf(ctx)
	defer claim.WorkDone()
	f.CountIn(claim)
	m, err := ms.Of(f)
	if err != nil {
		return err
	}
	return decode(ctx, f, m)
}
