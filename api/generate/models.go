package generate

import (
	"context"
	"io"
	"slices"

	"github.com/heftai/heft/api/wire"
)

// Of returns the model that a request names in its field "model"; see [Models.Use]. If f only
// describes requests, it returns an empty model.
func (ms *Models) Of(ctx context.Context, f *wire.Fields) (*Model, error) {
	if f.Describes() {
		f.Like("model", "")
		return &Model{}, nil
	}
	name, err := NameOf(f)
	if err != nil {
		return nil, err
	}
	return ms.Use(ctx, name)
}

// NameOf returns the field "model" of a request, or "" if it has none.
func NameOf(f *wire.Fields) (name string, err error) {
	if f.String("model", &name); f.Null("model") {
		f.WrongType("model", "a string")
	}
	return name, f.Err()
}

// Read reads the body of a request and calls decode with its fields and the model that it names. It
// waits for memory to decode them, and until the model is loaded. It releases the memory of the
// body after decode has returned. If ctx describes requests (see [wire.Describing]), decode gets an
// empty model. Errors are of type *wire.Error, or those of decode.
func (ms *Models) Read(ctx context.Context, body io.ReadCloser, decode func(context.Context, *wire.Fields, *Model) error) error {
	return ms.ReadFields(ctx, body, func(ctx context.Context, f *wire.Fields) error {
		m, err := ms.Of(ctx, f)
		if err != nil {
			return err
		}
		return decode(ctx, f, m)
	})
}

// ReadFields is Read for requests that may not need a model. decode calls [Models.Of] if it needs
// one.
func (ms *Models) ReadFields(ctx context.Context, body io.ReadCloser, decode func(context.Context, *wire.Fields) error) error {
	if f := wire.DescriptionOf(ctx); f != nil {
		return decode(ctx, f)
	}
	defer body.Close()
	b, err := wire.ReadBodyWithin(ctx, body, ms.textLimit())
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
	return decode(ctx, f)
}

// textLimit returns the limit of the texts of a body that is being read. It is nil while a model
// that the request may name is not loaded, because its tokenizer is unknown.
func (ms *Models) textLimit() *wire.TextLimit {
	var list []*Model
	for _, k := range ms.Known() {
		if k.Parent != "" { // uses the tokenizer of its base
			continue
		}
		if k.Model == nil {
			return nil
		}
		list = append(list, k.Model)
	}
	return TextLimit(list)
}

// KnownTo returns the models that the client of ctx may use, in the order of [Models.Known].
func (ms *Models) KnownTo(ctx context.Context) []Known {
	client := wire.ClientOf(ctx)
	return slices.DeleteFunc(ms.Known(), func(k Known) bool { return !client.May(k.Name) })
}

// allowed returns the name of the model for the client of ctx and a name, which may be "". It
// returns an error of kind wire.Forbidden if the client may not use the model.
func (ms *Models) allowed(ctx context.Context, name string) (string, error) {
	client := wire.ClientOf(ctx)
	if client.Models == nil {
		return name, nil
	}
	if name == "" {
		for _, k := range ms.KnownTo(ctx) {
			return k.Name, nil
		}
	}
	if k, err := ms.Look(name); err == nil && !client.May(k.Name) {
		return "", &wire.Error{Kind: wire.Forbidden, Field: "model", Message: "This API key may not use the model `" + k.Name + "`."}
	}
	return name, nil
}

// noModel returns the error for a name that no model has.
func noModel(name string) error {
	if name == "" {
		return &wire.Error{Kind: wire.NoModel, Message: "The server has no model."}
	}
	return &wire.Error{Kind: wire.NoModel, Message: "The model `" + name + "` does not exist: GET /v1/models lists those that do."}
}
