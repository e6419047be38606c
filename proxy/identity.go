package proxy

import (
	"encoding/base32"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// identity is what the value of a telling header says of who sent it.
type identity struct {
	// exact tells the sender from all others. kept is what a renewal of the
	// credential leaves as it is: less, or nothing that is proved.
	exact, kept string
	// credential says that the value proves something and does not only claim
	// it, firm that exact and kept are one. named says that kept is one
	// customer's as soon as the provider takes the value: it is signed.
	credential, firm, named bool
}

// proofs are the words in the names of headers that prove who asks; the other
// telling words only claim it.
var proofs = [...]string{"auth", "key", "token", "secret", "credential", "cookie", "password", "cert", "jwt", "assertion"}

// renewed are the beginnings of tokens that are renewed every few hours and
// whose text says nothing of who has them: those of Claude and Google logins,
// of GitHub apps, and short-lived keys of Bedrock. All other tokens are keys
// that stay.
var renewed = [...]string{"sk-ant-oat", "ya29.", "gho_", "ghu_", "ghs_", "bedrock-api-key-"}

// identify reads the value of a telling header.
func identify(name, value string) identity {
	id := identity{exact: value, kept: value, firm: true}
	small := strings.ToLower(name)
	for _, word := range proofs {
		if strings.Contains(small, word) {
			id.credential = true
			break
		}
	}
	if name == "Cookie" {
		return cookies(value)
	}
	if !id.credential {
		return id
	}
	scheme, token, ok := strings.Cut(value, " ")
	switch token = strings.TrimSpace(token); {
	case !ok:
		token = value
	case strings.HasPrefix(scheme, "AWS4-"):
		return signer(token)
	case !strings.EqualFold(scheme, "bearer") && !strings.EqualFold(scheme, "token"):
		return id
	}
	if kept, named := outlives(token); kept != "" {
		id.kept, id.firm, id.named = kept, false, named && checked[name]
	}
	return id
}

// checked are the headers in which providers themselves take their keys: no
// answer comes before they have looked at it. What stands elsewhere may be
// looked at by nobody.
var checked = map[string]bool{
	"Authorization": true, "Proxy-Authorization": true, "X-Api-Key": true, "Api-Key": true, "X-Goog-Api-Key": true,
}

// outlives gives what a renewal leaves of a token that is renewed, "" for one
// that is not. Nobody here can check what a token says of itself. Of a signed
// one the provider does: whoever puts another's name into it gets the
// provider's refusal and no answer, so that it names one customer. Of all others
// two customers may show the same.
func outlives(token string) (kept string, named bool) {
	if strings.HasPrefix(token, "tid=") { // of Copilot: tid=ID;exp=TIME;...:SIGNATURE
		who, _, _ := strings.Cut(token, ";")
		return who, who != token && len(who) > len("tid=")
	}
	if who, issued := subject(token); who != "" {
		return who, issued
	}
	for _, p := range renewed {
		if strings.HasPrefix(token, p) {
			return p, false
		}
	}
	if strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") == 4 { // encrypted (RFC 7516)
		return "encrypted", false
	}
	return "", false
}

// subject gives issuer and subject of a JSON Web Token (RFC 7519), "" when the
// token is none or names no subject, and whether it names an issuer: without
// one, two may say the same of two customers. Its signature is not checked.
func subject(token string) (who string, issued bool) {
	if !strings.HasPrefix(token, "eyJ") || strings.Count(token, ".") != 2 {
		return "", false
	}
	_, payload, _ := strings.Cut(token, ".")
	payload, _, _ = strings.Cut(payload, ".")
	claims, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(payload, "="))
	if err != nil || !gjson.ValidBytes(claims) {
		return "", false
	}
	found := gjson.GetManyBytes(claims, "iss", "sub")
	iss, sub := found[0], found[1]
	if sub.Type != gjson.String || sub.Str == "" {
		return "", false
	}
	return "jwt " + strconv.Quote(iss.String()) + " " + strconv.Quote(sub.Str), iss.Type == gjson.String && iss.Str != ""
}

// signer gives the access key id of a request that is signed by AWS Signature
// Version 4. Ids of temporary credentials (ASIA) change when they are renewed,
// but hold the number of the account.
func signer(params string) identity {
	_, scope, _ := strings.Cut(params, "Credential=")
	key, _, _ := strings.Cut(scope, "/")
	id := identity{exact: "aws " + key, kept: "aws " + key, credential: true, firm: true}
	if strings.HasPrefix(key, "ASIA") {
		id.kept, id.firm = "aws account "+account(key), false
	}
	return id
}

// account gives the account number in an access key id: forty bits behind the
// first bit of what the id holds in base 32.
func account(key string) string {
	b, err := base32.StdEncoding.DecodeString(key[4:])
	if err != nil || len(b) < 6 {
		return ""
	}
	n := uint64(0)
	for _, c := range b[:6] {
		n = n<<8 | uint64(c)
	}
	return strconv.FormatUint(n&0x7fffffffff80>>7, 10)
}

// passing are cookies that proxies on the way set and change.
var passing = map[string]bool{"__cf_bm": true, "_cfuvid": true, "cf_clearance": true, "__cflb": true}

// cookies reads the value of a Cookie header: what proxies set is left out, and
// of a token that is renewed what a renewal leaves is kept.
func cookies(value string) identity {
	exact, kept := make([]string, 0, 4), make([]string, 0, 4)
	id := identity{firm: true}
	for c := range strings.SplitSeq(value, ";") {
		c = strings.TrimSpace(c)
		name, token, _ := strings.Cut(c, "=")
		if passing[name] || c == "" {
			continue
		}
		exact = append(exact, c)
		if left, _ := outlives(token); left != "" {
			c, id.firm = name+"="+left, false
		}
		kept = append(kept, c)
	}
	id.exact, id.kept, id.credential = strings.Join(exact, "; "), strings.Join(kept, "; "), len(exact) > 0
	return id
}
