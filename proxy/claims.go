package proxy

import (
	"callgate/gate"
	"callgate/inspect"
)

// The headers by which a client that serves several people says for whom it
// asks. They stay here.
const (
	platformHeader = "X-Callgate-Platform"
	userHeader     = "X-Callgate-User"
)

// claims gives what the client says of itself. Nothing here proves it.
func (x *exchange) claims(info inspect.Info) gate.Claims {
	c := gate.Claims{Session: info.Session, User: info.User}
	if v := x.r.Header[userHeader]; len(v) == 1 && v[0] != "" {
		c.User = claimed(v[0])
	}
	if v := x.r.Header[platformHeader]; len(v) == 1 {
		c.Platform = claimed(v[0])
	}
	return c
}
