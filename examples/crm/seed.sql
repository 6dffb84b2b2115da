-- Written by make_conversations.py: what every conversation begins with.
INSERT INTO companies (id, name, kind, industry, country, employees) VALUES ('CO-1', 'Northwind Holding', 'customer', 'retail', 'US', 5200);
INSERT INTO companies (id, name, kind, industry, country, employees) VALUES ('CO-2', 'Rheinwerk', 'partner', 'energy', 'DE', 840);
INSERT INTO companies (id, name, kind, industry, country) VALUES ('CO-3', 'Papeterie Lune', 'vendor', 'retail', 'FR');
INSERT INTO clients (id, company_id, name, status, owner) VALUES ('CL-1', 'CO-1', 'Northwind Stores', 'active', 'dana');
INSERT INTO clients (id, company_id, name, email, status, owner) VALUES ('CL-2', 'CO-2', 'Rheinwerk Netz', 'hello@rheinwerk.example', 'prospect', 'lee');
INSERT INTO contacts (id, client_id, first_name, last_name, is_primary) VALUES ('CT-1', 'CL-1', 'Nora', 'West', true);
INSERT INTO contacts (id, client_id, first_name, last_name, title, is_primary) VALUES ('CT-2', 'CL-2', 'Karl', 'Brandt', 'Buyer', false);
INSERT INTO opportunities (id, client_id, name, stage, amount, probability, owner) VALUES ('OP-1', 'CL-1', 'Till replacement', 'closed_won', 64000, 100, 'dana');
INSERT INTO opportunities (id, client_id, name, stage, amount, probability) VALUES ('OP-2', 'CL-2', 'Metering', 'proposal', 91500, 40);
INSERT INTO quotes (id, opportunity_id, title, amount, status) VALUES ('QU-1', 'OP-1', 'Tills, 40 shops', 64000, 'approved');
INSERT INTO contracts (id, client_id, quote_id, value, status, start_date, end_date) VALUES ('CN-1', 'CL-1', 'QU-1', 64000, 'active', '2026-01-01', '2027-12-31');
INSERT INTO documents (id, client_id, contract_id, name, kind) VALUES ('DO-1', 'CL-1', 'CN-1', 'tills.pdf', 'agreement');
INSERT INTO notes (id, client_id, opportunity_id, body) VALUES ('NO-1', 'CL-2', 'OP-2', 'Waiting for the grid permit.');
