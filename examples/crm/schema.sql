-- A customer relationship manager as a company has one. Numbers come from sequences, so that a conversation that is
-- repeated meets the same ids.
CREATE TYPE company_kind AS ENUM ('customer', 'partner', 'vendor', 'competitor');
CREATE TYPE client_status AS ENUM ('prospect', 'active', 'inactive', 'churned');
CREATE TYPE opportunity_stage AS ENUM ('qualification', 'proposal', 'negotiation', 'closed_won', 'closed_lost');
CREATE TYPE quote_status AS ENUM ('draft', 'sent', 'approved', 'rejected', 'cancelled');
CREATE TYPE contract_status AS ENUM ('pending', 'active', 'expired', 'terminated');
CREATE TYPE document_kind AS ENUM ('proposal', 'agreement', 'invoice', 'specification', 'other');

CREATE SEQUENCE company_numbers START 1001;
CREATE SEQUENCE client_numbers START 1001;
CREATE SEQUENCE contact_numbers START 1001;
CREATE SEQUENCE opportunity_numbers START 1001;
CREATE SEQUENCE quote_numbers START 1001;
CREATE SEQUENCE contract_numbers START 1001;
CREATE SEQUENCE document_numbers START 1001;
CREATE SEQUENCE note_numbers START 1001;

CREATE TABLE companies (
    id text PRIMARY KEY DEFAULT 'CO-' || nextval('company_numbers'),
    name text NOT NULL UNIQUE CHECK (name <> ''),
    kind company_kind NOT NULL DEFAULT 'customer',
    industry text,
    country char(2) CHECK (country = upper(country)),
    employees integer CHECK (employees > 0)
);

CREATE TABLE clients (
    id text PRIMARY KEY DEFAULT 'CL-' || nextval('client_numbers'),
    company_id text REFERENCES companies (id),
    name text NOT NULL UNIQUE CHECK (name <> ''),
    email text UNIQUE CHECK (email LIKE '%_@_%._%'),
    phone text,
    status client_status NOT NULL DEFAULT 'prospect',
    owner text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE contacts (
    id text PRIMARY KEY DEFAULT 'CT-' || nextval('contact_numbers'),
    client_id text NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
    first_name text NOT NULL CHECK (first_name <> ''),
    last_name text NOT NULL CHECK (last_name <> ''),
    title text,
    email text CHECK (email LIKE '%_@_%._%'),
    phone text,
    is_primary boolean NOT NULL DEFAULT false,
    UNIQUE (client_id, email)
);
CREATE UNIQUE INDEX one_primary_contact ON contacts (client_id) WHERE is_primary;

CREATE TABLE opportunities (
    id text PRIMARY KEY DEFAULT 'OP-' || nextval('opportunity_numbers'),
    client_id text NOT NULL REFERENCES clients (id),
    name text NOT NULL CHECK (name <> ''),
    stage opportunity_stage NOT NULL DEFAULT 'qualification',
    amount numeric(12, 2) NOT NULL CHECK (amount >= 0),
    probability integer NOT NULL DEFAULT 10 CHECK (probability BETWEEN 0 AND 100),
    close_date date,
    owner text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (client_id, name),
    CHECK (stage <> 'closed_won' OR probability = 100),
    CHECK (stage <> 'closed_lost' OR probability = 0)
);

CREATE TABLE quotes (
    id text PRIMARY KEY DEFAULT 'QU-' || nextval('quote_numbers'),
    opportunity_id text NOT NULL REFERENCES opportunities (id),
    title text NOT NULL CHECK (title <> ''),
    amount numeric(12, 2) NOT NULL CHECK (amount > 0),
    status quote_status NOT NULL DEFAULT 'draft',
    valid_until date,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (opportunity_id, title)
);

CREATE TABLE contracts (
    id text PRIMARY KEY DEFAULT 'CN-' || nextval('contract_numbers'),
    client_id text NOT NULL REFERENCES clients (id),
    quote_id text UNIQUE REFERENCES quotes (id),
    value numeric(12, 2) NOT NULL CHECK (value > 0),
    status contract_status NOT NULL DEFAULT 'pending',
    start_date date NOT NULL,
    end_date date NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ends_after_it_starts CHECK (end_date > start_date)
);

CREATE TABLE documents (
    id text PRIMARY KEY DEFAULT 'DO-' || nextval('document_numbers'),
    client_id text NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
    contract_id text REFERENCES contracts (id) ON DELETE SET NULL,
    name text NOT NULL CHECK (name <> ''),
    kind document_kind NOT NULL DEFAULT 'other',
    uploaded_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (client_id, name)
);

CREATE TABLE notes (
    id text PRIMARY KEY DEFAULT 'NO-' || nextval('note_numbers'),
    client_id text NOT NULL REFERENCES clients (id) ON DELETE CASCADE,
    opportunity_id text REFERENCES opportunities (id) ON DELETE CASCADE,
    body text NOT NULL CHECK (body <> ''),
    author text,
    created_at timestamptz NOT NULL DEFAULT now()
);
