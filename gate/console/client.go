package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"callgate/gate"
)

// Client asks the API of a running callgate.
type Client struct {
	// Base is the listener's address: http://127.0.0.1:4142.
	Base string
	// Token is the control token.
	Token string
	// HTTP makes the requests. Nil means one that uses no proxy, follows no
	// redirect and waits ten seconds at most, so that the token goes nowhere
	// but to Base.
	HTTP *http.Client
}

// The errors of a Client that callers act on.
var (
	// ErrUnreachable reports that nothing at Base speaks the API.
	ErrUnreachable = errors.New("the control listener is not reachable")
	// ErrToken reports that the token is missing or wrong.
	ErrToken = errors.New("the control token is missing or wrong")
)

// APIError is an error that the API gave.
type APIError struct {
	// Status is the HTTP status, Code one of the Code constants, and Message a
	// sentence without a full stop.
	Status        int
	Code, Message string
	// Approval is the approval as it stands, nil when the error came without.
	Approval *gate.Approval
}

// Error gives the message.
func (e *APIError) Error() string { return e.Message }

// Is makes the errors of approvals, and ErrToken, known by their codes.
func (e *APIError) Is(target error) bool {
	switch target {
	case gate.ErrNotFound:
		return e.Code == CodeNotFound
	case gate.ErrAnswered:
		return e.Code == CodeAnswered
	case ErrToken:
		return e.Code == CodeUnauthorized
	}
	return false
}

// List gives the approvals in that state, newest first; state "" means all,
// limit 0 as many as the API gives by itself.
func (c *Client) List(ctx context.Context, state gate.ApprovalState, limit int) ([]gate.Approval, error) {
	query := url.Values{}
	if state != "" {
		query.Set("state", string(state))
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	path := "approvals"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var l list
	if err := c.do(ctx, http.MethodGet, path, nil, &l); err != nil {
		return nil, err
	}
	if l.Approvals == nil || slices.ContainsFunc(l.Approvals, strange) {
		return nil, c.stranger("it gives no list of approvals")
	}
	return l.Approvals, nil
}

// Get gives one approval. Ids are written in lower case; here and below the
// case in which one is given does not matter.
func (c *Client) Get(ctx context.Context, id string) (gate.Approval, error) {
	return c.one(ctx, http.MethodGet, id, "", nil)
}

// Approve says yes to a question, by somebody and for a reason ("" for none),
// and gives it as it then stands.
func (c *Client) Approve(ctx context.Context, id, reason, by string) (gate.Approval, error) {
	return c.answer(ctx, id, "approve", reason, by)
}

// Deny says no to a question, as Approve says yes.
func (c *Client) Deny(ctx context.Context, id, reason, by string) (gate.Approval, error) {
	return c.answer(ctx, id, "deny", reason, by)
}

func (c *Client) answer(ctx context.Context, id, word, reason, by string) (gate.Approval, error) {
	return c.one(ctx, http.MethodPost, id, "/"+word, map[string]string{"reason": reason, "by": by})
}

// one makes a request whose answer is the approval with that id.
func (c *Client) one(ctx context.Context, method, id, behind string, in any) (gate.Approval, error) {
	id = strings.ToLower(id)
	var a gate.Approval
	if err := c.do(ctx, method, "approvals/"+url.PathEscape(id)+behind, in, &a); err != nil {
		return gate.Approval{}, err
	}
	if strange(a) || a.ID != id {
		return gate.Approval{}, c.stranger("it does not give the approval")
	}
	return a, nil
}

// strange tells whether something is no approval of callgate's: any JSON
// object can be read as one.
func strange(a gate.Approval) bool {
	return a.ID == "" || a.Created.IsZero() || !slices.Contains(States, a.State)
}

// stranger is the error for an answer that another program must have given.
func (c *Client) stranger(how string) error {
	return c.unreachable("what answers there is not callgate's control listener: " + how)
}

// maxAnswer bounds what is read of an answer: a full list of large calls.
const maxAnswer = 256 << 20

// do makes one request and reads its answer into out.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	if c.Token == "" {
		return fmt.Errorf("%w: set CALLGATE_CONTROL_TOKEN to the token of callgate serve", ErrToken)
	}
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Base, "/")+root+path, body)
	if err != nil {
		return fmt.Errorf("the address %q of the control listener: %w", c.Base, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http().Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.unreachable(err.Error())
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the answer of the control listener at %s: %w", c.Base, err)
	}
	if resp.StatusCode != http.StatusOK {
		return c.refused(resp.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return c.stranger(err.Error())
	}
	return nil
}

func (c *Client) http() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	return &http.Client{
		Timeout: 10 * time.Second,
		// Nothing is kept alive: a client makes one request or two.
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (c *Client) unreachable(reason string) error {
	return fmt.Errorf("%w at %s: %s; is callgate serve running, and is this its control address?", ErrUnreachable, c.Base, reason)
}

// refused reads an answer that is not 200.
func (c *Client) refused(status int, answer []byte) error {
	var e struct {
		Error    *struct{ Code, Message string }
		Approval *gate.Approval
	}
	if err := json.Unmarshal(answer, &e); err != nil || e.Error == nil || e.Error.Code == "" {
		return c.stranger(fmt.Sprintf("status %d", status))
	}
	ae := &APIError{Status: status, Code: e.Error.Code, Message: e.Error.Message, Approval: e.Approval}
	if ae.Code == CodeUnauthorized {
		return fmt.Errorf("%w: set CALLGATE_CONTROL_TOKEN to the token of callgate serve", ae)
	}
	return ae
}
