package wire

import (
	"context"
	"slices"
)

// A Client is the sender of requests. It does not change.
type Client struct {
	// ID identifies the client by its API key or, without a key, by its address. Requests of
	// different clients take turns.
	ID string
	// Name is the name of the API key for logs and metrics, or "" if there is no key or it has no
	// name.
	Name string
	// Admin allows requests that change the served models and adapters.
	Admin bool
	// Models are the models that the client may use; nil means all.
	Models []string
	// Spend counts tokens that were computed for the client; nil means that they are not counted.
	Spend func(prompt, completion int)
}

type clientKey struct{}

// noClient is the client of requests from Go programs.
var noClient = &Client{Admin: true}

// WithClient returns a context for the requests of c.
func WithClient(ctx context.Context, c *Client) context.Context {
	if r, ok := ctx.Value(recordKey{}).(*Record); ok {
		r.Client = c.Name
	}
	return context.WithValue(ctx, clientKey{}, c)
}

// ClientOf returns the client of the request that ctx belongs to. It is never nil.
func ClientOf(ctx context.Context) *Client {
	if c, ok := ctx.Value(clientKey{}).(*Client); ok {
		return c
	}
	return noClient
}

// May reports whether c may use a model.
func (c *Client) May(model string) bool { return c.Models == nil || slices.Contains(c.Models, model) }

// CheckAdmin returns an error of kind Forbidden if c may not change the served models and adapters.
func (c *Client) CheckAdmin() error {
	if c.Admin {
		return nil
	}
	return &Error{Kind: Forbidden, Message: "This request needs an admin key."}
}

// Spent calls Spend, if it is set.
func (c *Client) Spent(prompt, completion int) {
	if c != nil && c.Spend != nil {
		c.Spend(prompt, completion)
	}
}
