package generate

import (
	"context"
	"io"
	"slices"

	"github.com/heftai/heft/api/wire"
)

// Of returns the model that a request names in its field "model"; see [Models.Use]. If f describes requests, it is a model
// that knows nothing.
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

// NameOf returns the field "model" of a request, "" if it has none.
func NameOf(f *wire.Fields) (name string, err error) {
	if f.String("model", &name); f.Null("model") {
		f.WrongType("model", "a string")
	}
	return name, f.Err()
}

// Read reads the body of a request and passes its fields, and the model that it names, to decode. It
// waits until there is memory to decode them, and until the model is loaded. The memory of the body is released
// when decode has returned. If ctx describes requests (see [wire.Describing]), decode gets a model that knows nothing. Errors are of type *wire.Error, or those of decode.
func (ms *Models) Read(ctx context.Context, body io.ReadCloser, decode func(context.Context, *wire.Fields, *Model) error) error {
	return ms.ReadFields(ctx, body, func(ctx context.Context, f *wire.Fields) error {
		m, err := ms.Of(ctx, f)
		if err != nil {
			return err
		}
		return decode(ctx, f, m)
	})
}

// ReadFields is Read for requests that may need no model: decode calls [Models.Of] where it does.
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

// textLimit is the limit for texts of a body that is still read. While a model that may be asked for is not
// loaded there is none, as its tokenizer is not known.
func (ms *Models) textLimit() *wire.TextLimit {
	var list []*Model
	for _, k := range ms.Known() {
		if k.Parent != "" { // its tokenizer is that of its base
			continue
		}
		if k.Model == nil {
			return nil
		}
		list = append(list, k.Model)
	}
	return TextLimit(list)
}

// KnownTo returns the models that the client of ctx may use, as [Models.Known] does.
func (ms *Models) KnownTo(ctx context.Context) []Known {
	client := wire.ClientOf(ctx)
	return slices.DeleteFunc(ms.Known(), func(k Known) bool { return !client.May(k.Name) })
}

// allowed returns the name of the model that the client of ctx means by name, which may be "". It fails with an error
// of kind wire.Forbidden if the client may not use it.
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

// noModel says that no model has a name.
func noModel(name string) error {
	if name == "" {
		return &wire.Error{Kind: wire.NoModel, Message: "The server has no model."}
	}
	return &wire.Error{Kind: wire.NoModel, Message: "The model `" + name + "` does not exist: GET /v1/models lists those that do."}
}
